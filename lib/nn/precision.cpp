#include "nn/precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace ql::nn {

// In the order of the enumeration.
const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> kNames = {"float32", "tf32", "bfloat16", "float16"};
  return kNames;
}

std::string to_text(Precision precision) {
  return precision_names()[static_cast<std::size_t>(precision)];
}

Precision precision_from_text(const std::string& text, const std::string& where) {
  const std::vector<std::string>& names = precision_names();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    throw ConfigError(where, fmt::format("'{}' is not a precision", text),
                      fmt::format("use {}", fmt::join(names, ", ")));
  }
  return static_cast<Precision>(found - names.begin());
}

}  // namespace ql::nn
