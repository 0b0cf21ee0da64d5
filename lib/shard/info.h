// What a packed folder holds, for people and for scripts.
#pragma once

#include <string>

#include "shard/manifest.h"

namespace ql::shard {

// Some indented lines.
std::string info_text(const std::string& name, const Manifest& manifest);

// One line of tab-separated values; the names of the columns.
std::string info_tsv_header();
std::string info_tsv(const std::string& name, const Manifest& manifest);

// A JSON object without line ends.
std::string info_json(const std::string& name, const Manifest& manifest);

}  // namespace ql::shard
