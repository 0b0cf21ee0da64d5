// Says what a packed folder holds, to people and to scripts.
#pragma once

#include <string>

#include "shard/manifest.h"

namespace ql::shard {

// Returns some indented lines.
std::string summary_text(const std::string& name, const Manifest& manifest);

// Returns all that the manifest says, but for the single files.
Json summary_object(const std::string& name, const Manifest& manifest);

// Returns the object's values but the provenance as a row of base/rows.h; unknown ones are null.
Json summary_row(const std::string& name, const Manifest& manifest);

}  // namespace ql::shard
