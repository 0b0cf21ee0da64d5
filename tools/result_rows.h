// Prints the rows of qleval: as a table, as a JSON list, or with --per as a JSON object on each
// line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/rows.h"
#include "base/stream.h"

namespace ql {

// Prints on standard output, or on standard error where --per-token writes on standard output. Only
// the `first` process of several prints.
class ResultRows {
 public:
  // `columns` come first on a terminal.
  ResultRows(const Options& options, std::vector<std::string> columns, bool first);

  // Throws UsageError for a column of --columns that the rows, like this one, do not have.
  void check(const Json& row) const { table_.check(row); }
  void put(const Json& row);
  void flush();
  // Ends the list, and throws the errors of OutputStream::close().
  void close();

 private:
  void write(const std::string& text);

  const bool silent_, json_, list_;
  bool is_first_row_ = true;
  TableText table_;
  std::optional<OutputStream> out_;
};

// Throws SystemError if the text cannot be written.
void write_to_standard_error(const std::string& text);

}  // namespace ql
