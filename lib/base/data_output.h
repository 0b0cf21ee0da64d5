// Writes the data of a tool to standard output, or to a file that -o names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace ql {

class DataOutput {
 public:
  // "-" is standard output, which is no terminal when the data are `binary` (see OutputStream). Any
  // other file appears under its name when close() returns, and not at all without it.
  DataOutput(const std::string& path, bool binary);
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Passes on to the reader of standard output what was written. Nobody reads the file yet.
  void flush();
  // Call it at the end of a successful run.
  void close();

 private:
  void write_buffer();

  std::optional<OutputStream> stream_;
  std::optional<AtomicFile> file_;
  std::string buffer_;  // of the file
};

}  // namespace ql
