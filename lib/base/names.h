// Enumerations by the names that files and options have for them. Beside such an enumeration stands
//
//   constexpr auto names_of(Pool) { return std::array{"max", "mean"}; }
//
// with its names in the order of its values, which count from 0.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace ql {

template <typename Value>
std::vector<std::string> all_names() {
  const auto names = names_of(Value());
  return {names.begin(), names.end()};
}

template <typename Value, typename = std::enable_if_t<std::is_enum_v<Value>>>
std::string to_text(Value value) {
  return names_of(value).at(static_cast<std::size_t>(value));
}

// Nothing when no value has this name.
template <typename Value>
std::optional<Value> find_named(std::string_view name) {
  const auto names = names_of(Value());
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<Value>(found - names.begin()));
}

// Throws FormatError with all names there are; `where` is what the name was given for.
template <typename Value>
Value value_named(const std::string& name, const std::string& where) {
  const std::optional<Value> value = find_named<Value>(name);
  if (!value) {
    throw FormatError(where, fmt::format("'{}' is unknown", name),
                      fmt::format("known are {}", fmt::join(all_names<Value>(), ", ")));
  }
  return *value;
}

}  // namespace ql
