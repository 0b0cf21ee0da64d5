// Rows of results for scripts: a row is a flat JSON object, and all rows of a table have the same
// keys in the same order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"

namespace ql {

// The keys of a row, and a row, as lines of tab-separated values. What is not known or does not
// apply is null, and written as "-"; a list's items stand with commas between them; real numbers
// have eight digits, but whole ones and halves all of theirs. In a text a tab, line end or
// backslash becomes \t, \n, \r or two backslashes, another control character '?'.
std::string tsv_header(const Json& row);
std::string tsv_line(const Json& row);

// Prints rows as a table with a header: tab-separated for programs, aligned for people.
class TableText {
 public:
  // `columns`: names with commas between them, or "all". "" is all as well, but on a terminal as
  // many as fit kTerminalWidth, those of `first` before the others. `terminal`: aligned.
  TableText(const std::string& columns, bool terminal, std::vector<std::string> first = {});

  // The row as a line, behind the header if it is the first. Throws UsageError for a column that
  // the row does not have.
  std::string lines(const Json& row);

  static constexpr std::size_t kTerminalWidth = 100;

 private:
  void choose(const Json& row);
  std::string line(const std::vector<std::string>& cells) const;

  struct Column {
    std::string name;
    std::size_t width = 0;  // of the header and the first row
    bool right = false;     // numbers stand on the right
  };
  std::string wanted_;
  bool terminal_;
  std::vector<std::string> first_;
  std::vector<Column> columns_;
};

// A row on one line, which is not ended. Bytes that are no UTF-8, as a file's name may have them,
// become U+FFFD.
std::string json_line(const Json& row);

}  // namespace ql
