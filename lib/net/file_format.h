// What the JSON files of this component share.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace ql::net {

// Throws FormatError unless "format" and "version" of `json` are these.
void check_format(const JsonObject& json, const std::string& format, std::int64_t version);

}  // namespace ql::net
