// Formats each row, and writes it where the losses of --per-token do not go.

#include "result_rows.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/tool.h"

namespace ql {

void write_to_standard_error(const std::string& text) {
  if (std::fputs(text.c_str(), stderr) < 0 || std::fflush(stderr) != 0) {
    throw SystemError("standard error", "write", errno);
  }
}

ResultRows::ResultRows(const Options& options, std::vector<std::string> columns, bool first)
    : silent_(!first),
      json_(options.text("format") == "json"),
      list_(json_ && !options.has("per")),
      table_(table_of(options, std::move(columns))) {
  const bool losses_on_output = options.has("per-token") && options.text("per-token") == "-";
  if (!losses_on_output) out_.emplace("-", /*binary=*/false);
}

void ResultRows::write(const std::string& text) {
  if (silent_) return;
  if (out_) {
    out_->write(text);
  } else {
    write_to_standard_error(text);
  }
}

void ResultRows::put(const Json& row) {
  const std::string before = !list_ ? "" : is_first_row_ ? "[\n" : ",\n";
  write(json_ ? before + json_line(row) + (list_ ? "" : "\n") : table_.lines(row));
  is_first_row_ = false;
}

void ResultRows::flush() {
  if (out_) out_->flush();
}

void ResultRows::close() {
  if (list_) write("\n]\n");
  if (out_) out_->close();
}

}  // namespace ql
