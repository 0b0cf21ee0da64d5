// Formats result rows for scripts, and as human-readable tables. A row is a flat JSON object; all
// rows of a table have the same keys in the same order.
#pragma once

#include <cstddef>
#include <map>
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
  // `columns` has names separated by commas, or is "all" or "". A `terminal` of this width aligns
  // the table; 0 means no terminal. Without a terminal, "" means "all". With a terminal, "" puts
  // the columns in `first` before all others, and leaves out columns that would exceed its width.
  TableText(const std::string& columns, std::size_t terminal, std::vector<std::string> first = {});

  // Throws UsageError for a chosen column that the row does not have. lines() calls this function
  // for the first row. Before long work, call it with a row that has all keys.
  void check(const Json& row) const;
  // Makes the columns wide enough for this row. Without this call only the first row counts, so a
  // caller that knows all rows calls it for each of them before lines().
  void expect(const Json& row);
  // Returns the row as a line, after the header if it is the first row.
  std::string lines(const Json& row);

 private:
  void choose(const Json& row);
  std::string line(const std::vector<std::string>& cells) const;

  struct Column {
    std::string name;
    std::size_t width = 0;  // of the widest one of the header, the first cell and expected cells
    bool right = false;     // numbers are aligned on the right
  };
  std::string wanted_;
  std::size_t terminal_;
  std::vector<std::string> first_;
  std::vector<Column> columns_;
  std::map<std::string, std::size_t> expected_;  // widths of cells
};

// Returns the names of the row's columns.
std::vector<std::string> keys_of(const Json& row);

// Returns the width of the terminal at this descriptor in characters, 80 if the terminal does not
// know its width, and 0 if the descriptor is not a terminal.
std::size_t terminal_width(int descriptor);

// Returns the row on one line, without a newline. Bytes that are not valid UTF-8 (a file's name may
// have them) become U+FFFD.
std::string json_line(const Json& row);

}  // namespace ql
