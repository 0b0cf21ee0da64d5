// A file that grows by whole records.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.h"

namespace ql {

class AppendFile {
 public:
  // Opens a file that exists. Throws SystemError, as the others do.
  explicit AppendFile(const std::filesystem::path& path);
  // Adds all of the record or, when the disk is full, nothing: the file is cut back to its earlier
  // length. Only a process that is killed may leave a part of a record behind.
  void append(std::string_view record);
  // Onto the disk.
  void sync();

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
};

}  // namespace ql
