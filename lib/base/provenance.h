// Every vocabulary, stream, manifest and checkpoint tells where it came from.
#pragma once

#include "base/json.h"

namespace ql {

// {"tool": "qlbin", "version": "0.1.0", "command": "qlbin pack -o ...", "configuration": {...}}.
// No clock and no host name: the same command on the same input gives the same bytes.
Json provenance(const Json& configuration);

}  // namespace ql
