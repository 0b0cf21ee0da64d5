// Formats result rows for scripts, and as human-readable tables. A row is a flat JSON object; all
// rows of a table have the same keys in the same order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"

namespace ql {

// Formats rows as a table with a header: tab-separated for programs, or aligned for human readers.
// Null (unknown, or not applicable) is written as "-". A list's items are separated by commas. Real
// numbers have eight significant digits; integers, and multiples of 0.5 below 1e10, have all their
// digits. In a text a tab, line end or backslash becomes \t, \n, \r or two backslashes, and another
// control character becomes '?'.
class TableText {
 public:
  // `columns` has names separated by commas, or is "all" or "". `terminal` aligns the table.
  // Without `terminal`, "" means "all". With `terminal`, "" puts the columns in `first` before
  // all others, and leaves out columns that would exceed kTerminalWidth.
  TableText(const std::string& columns, bool terminal, std::vector<std::string> first = {});

  // Throws UsageError for a chosen column that the row does not have. lines() calls this function
  // for the first row. Before long work, call it with a row that has all keys.
  void check(const Json& row) const;
  // Returns the row as a line, after the header if it is the first row.
  std::string lines(const Json& row);

  static constexpr std::size_t kTerminalWidth = 100;

 private:
  void choose(const Json& row);
  std::string line(const std::vector<std::string>& cells) const;

  struct Column {
    std::string name;
    std::size_t width = 0;  // of the wider one of the header and the first cell
    bool right = false;     // numbers are aligned on the right
  };
  std::string wanted_;
  bool terminal_;
  std::vector<std::string> first_;
  std::vector<Column> columns_;
};

// Returns the row on one line, without a newline. Bytes that are not valid UTF-8 (a file's name may
// have them) become U+FFFD.
std::string json_line(const Json& row);

}  // namespace ql
