// Provenance of data that was made from other data.
#pragma once

#include "base/json.h"

namespace ql::shard {

// base/provenance.h's provenance() of this run with what went in under "input": the provenance of a
// stream, or a list of objects each with a "provenance". Old generations are left out when the
// history grows long or deep, so that data may be joined and packed again without end.
Json lineage(const Json& configuration, const Json& input);

}  // namespace ql::shard
