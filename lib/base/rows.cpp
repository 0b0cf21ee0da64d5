#include "base/rows.h"

#include <fmt/ranges.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace ql {

namespace {

constexpr std::string_view kEscaped = "\t\n\r\\", kNames = "tnr\\";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    const std::size_t found = kEscaped.find(letter);
    if (found != std::string_view::npos) result += '\\';
    result += found == std::string_view::npos ? letter : kNames[found];
  }
  return printable(std::move(result));
}

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return escaped(value.get<std::string>());
  if (value.is_array()) {
    return fmt::format("{}", fmt::join(value.get<std::vector<std::int64_t>>(), ","));
  }
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  // Such a number of this size was counted, not measured.
  const bool is_count = number * 2 == std::floor(number * 2) && std::abs(number) < 1e10;
  return fmt::format("{:.{}g}", number, is_count ? 12 : 8);
}

}  // namespace

std::string tsv_header(const Json& row) {
  std::vector<std::string> names;
  for (const auto& item : row.items()) names.push_back(item.key());
  return fmt::format("{}\n", fmt::join(names, "\t"));
}

std::string tsv_line(const Json& row) {
  std::vector<std::string> cells;
  for (const Json& value : row) cells.push_back(cell(value));
  return fmt::format("{}\n", fmt::join(cells, "\t"));
}

std::string json_line(const Json& row) {
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ql
