// Plain files: read at any place, or written once from the beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/descriptor.h"

namespace ql {

// Read-only. Reads go through pread, not a memory map: a file that is cut while it is read gives an
// error instead of a signal.
class RandomAccessFile {
 public:
  // Throws SystemError, and FormatError for what is not a regular file.
  explicit RandomAccessFile(const std::filesystem::path& path);
  std::int64_t size() const { return size_; }
  // Exactly `size` bytes from `offset`; FormatError when the file ends before.
  void read(std::int64_t offset, void* data, std::size_t size) const;
  // All of it. FormatError when that is more than `limit` bytes.
  std::string text(std::int64_t limit) const;
  // Gives this file, whatever has happened to its name since it was opened, another name; false
  // where that cannot be.
  bool hard_link(const std::filesystem::path& name) const;
  // The first bytes, as file_kind.h looks at them.
  std::string head() const;
  // All of it, hashed as base/hash.h content_hash does. Throws Interrupted, if it may be stopped.
  std::string hash(bool may_be_stopped = true) const;

 private:
  std::string name_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

// Creates a file that must not exist yet. Errors name `shown_name`: the file as the user will know
// it, not the temporary folder around it.
class NewFile {
 public:
  NewFile(const std::filesystem::path& path, std::string shown_name);
  void write(const void* data, std::size_t size);
  // Checked close; call it at the end of good work.
  void close();

 private:
  std::string shown_name_;
  Descriptor descriptor_;
};

}  // namespace ql
