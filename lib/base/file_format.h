// The first two keys of every JSON file of ours.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace ql {

// The file may be good for another release: it is not damaged.
class UnknownVersion : public FormatError {
 public:
  using FormatError::FormatError;
};

// Throws FormatError unless "format" of `json` is this, UnknownVersion unless "version" is.
void check_format(const JsonObject& json, const std::string& format, std::int64_t version);

}  // namespace ql
