// What a packed folder holds, for people and for scripts.
#pragma once

#include <string>

#include "shard/manifest.h"

namespace ql::shard {

// Some indented lines.
std::string info_text(const std::string& name, const Manifest& manifest);

// A row of base/rows.h.
Json info_row(const std::string& name, const Manifest& manifest);

// All that the row says and the provenance, in objects.
Json info_object(const std::string& name, const Manifest& manifest);

}  // namespace ql::shard
