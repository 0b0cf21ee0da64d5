// Formats the cells of a table, and chooses columns that fit a terminal.

#include "base/rows.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

namespace ql {

static std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return printable(escaped(value.get<std::string>(), Among::kLines));
  if (value.is_array()) {
    return fmt::format("{}", fmt::join(value.get<std::vector<std::int64_t>>(), ","));
  }
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  // Multiples of one half up to this size are counts (or halves of counts), and not measurements.
  const bool is_count = number * 2 == std::floor(number * 2) && std::abs(number) < 1e10;
  return fmt::format("{:.{}g}", number, is_count ? 12 : 8);
}

TableText::TableText(const std::string& columns, std::size_t terminal,
                     std::vector<std::string> first)
    : wanted_(columns), terminal_(terminal), first_(std::move(first)) {}

void TableText::expect(const Json& row) {
  for (const auto& item : row.items()) {
    std::size_t& width = expected_[item.key()];
    width = std::max(width, cell(item.value()).size());
  }
}

std::string TableText::lines(const Json& row) {
  std::string text;
  std::vector<std::string> cells;
  if (columns_.empty()) {
    choose(row);
    for (const Column& column : columns_) cells.push_back(column.name);
    text = line(cells);
    cells.clear();
  }
  for (const Column& column : columns_) cells.push_back(cell(row[column.name]));
  return text + line(cells);
}

std::vector<std::string> keys_of(const Json& row) {
  std::vector<std::string> keys;
  for (const auto& item : row.items()) keys.push_back(item.key());
  return keys;
}

void TableText::check(const Json& row) const {
  if (wanted_.empty() || wanted_ == "all") return;
  for (const std::string& name : split(wanted_, ',')) {
    if (row.contains(name)) continue;
    const std::string near = nearest(name, keys_of(row));
    throw UsageError("--columns", fmt::format("there is no column '{}'", name),
                     near.empty() ? fmt::format("the columns are {}", fmt::join(keys_of(row), ", "))
                                  : fmt::format("did you mean '{}'?", near));
  }
}

void TableText::choose(const Json& row) {
  check(row);
  const bool chosen = !wanted_.empty() && wanted_ != "all";
  std::vector<std::string> order = chosen ? split(wanted_, ',') : keys_of(row);
  if (wanted_.empty() && terminal_ > 0) {
    const auto place = [this](const std::string& name) {
      return std::find(first_.begin(), first_.end(), name) - first_.begin();
    };
    std::stable_sort(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
      return place(a) < place(b);
    });
  }
  std::size_t all = 0;
  for (const std::string& name : order) {
    const Column column{name, std::max({name.size(), cell(row[name]).size(), expected_[name]}),
                        row[name].is_number()};
    const std::size_t wider = all + (all > 0 ? 2 : 0) + column.width;
    if (wanted_.empty() && terminal_ > 0 && !columns_.empty() && wider > terminal_) continue;
    columns_.push_back(column);
    all = wider;
  }
}

std::string TableText::line(const std::vector<std::string>& cells) const {
  if (terminal_ == 0) return fmt::format("{}\n", fmt::join(cells, "\t"));
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Column& column = columns_[i];
    if (i > 0) text += "  ";
    text += column.right ? fmt::format("{:>{}}", cells[i], column.width)
                         : fmt::format("{:<{}}", cells[i], column.width);
  }
  return text.erase(text.find_last_not_of(' ') + 1) + "\n";
}

std::size_t terminal_width(int descriptor) {
  if (::isatty(descriptor) != 1) return 0;
  winsize size = {};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string json_line(const Json& row) {
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ql
