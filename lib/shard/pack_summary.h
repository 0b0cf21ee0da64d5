// What a packed folder holds, for people and for scripts.
#pragma once

#include <string>

#include "shard/manifest.h"

namespace ql::shard {

// Some indented lines.
std::string summary_text(const std::string& name, const Manifest& manifest);

// All that the manifest says, but for the single files.
Json summary_object(const std::string& name, const Manifest& manifest);

// A row of base/rows.h: the object's values, but for the provenance. What is not known is null.
Json summary_row(const std::string& name, const Manifest& manifest);

}  // namespace ql::shard
