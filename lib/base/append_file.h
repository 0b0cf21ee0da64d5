// A file that grows by whole records.
#pragma once

#include <filesystem>
#include <string_view>

namespace ql {

class AppendFile {
 public:
  // Opens a file that exists. Throws SystemError, as the others do.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Adds all of the record or, when the disk is full, nothing: the file is cut back to its earlier
  // length. Only a process that is killed may leave a part of a record behind.
  void append(std::string_view record);
  // Onto the disk.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace ql
