// Opens files, reads them at any place, and appends records to them.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace ql {

// Repeats a system call that a signal interrupted before it did anything (EINTR). Not for close().
template <typename Call>
auto uninterrupted(const Call& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Owns an open file, socket or end of a pipe, and closes it. A negative number stands for nothing.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  // Opens a file that child processes do not inherit. Throws SystemError(where, action, errno).
  Descriptor(const std::filesystem::path& path, int flags, const std::string& where,
             const std::string& action = "open");
  // A class with a descriptor in it cannot move, because other objects may point into it.
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  operator int() const { return number_; }
  // Writes everything or throws SystemError(where, "write", errno).
  void write(const void* data, std::size_t size, const std::string& where) const;
  // Returns false, with errno, when the written data may not have arrived. On Linux close() has
  // closed the descriptor even when it was interrupted.
  bool close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0 || errno == EINTR;
  }

 private:
  int number_;
};

namespace fs = std::filesystem;

// Returns a file's content. Throws SystemError; a file above `limit` bytes is an Error.
std::string read_file(const fs::path& path, std::int64_t limit = INT64_MAX);

// Returns true when `path` is relative and stays inside its folder (no "..", no root). Every path
// that is found inside a file must be so.
bool is_inside_path(const fs::path& path);

// These classes handle plain files, which are read at any place, written once from the beginning,
// or extended record by record.

// Reads a file at any place. It uses pread, not a memory map: a file that is cut while it is read
// then gives an error instead of a signal.
class RandomAccessFile {
 public:
  // Throws SystemError, and FormatError for a path that is not a regular file.
  explicit RandomAccessFile(const std::filesystem::path& path);
  std::int64_t size() const { return size_; }
  // Reads exactly `size` bytes from `offset`. Throws FormatError when the file ends before.
  void read(std::int64_t offset, void* data, std::size_t size) const;
  // Returns the complete content. Throws FormatError when that is more than `limit` bytes.
  std::string text(std::int64_t limit) const;
  // Gives the opened file another name, even if its first one was renamed or removed since. Returns
  // false where the file system cannot do so.
  bool hard_link(const std::filesystem::path& name) const;
  // Returns the first bytes, as many as file_kind() wants.
  std::string head() const;
  // Returns content_hash() of the content. Throws Interrupted, if it may be stopped.
  std::string hash(bool may_be_stopped = true) const;

 private:
  std::string name_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

// Creates a file that must not exist yet. Errors name `shown_name`, which the user knows, and not
// the temporary folder around the file.
class NewFile {
 public:
  NewFile(const std::filesystem::path& path, std::string shown_name);
  void write(const void* data, std::size_t size);
  // Closes and checks. Call it after the last write.
  void close();

 private:
  std::string shown_name_;
  Descriptor descriptor_;
};

// Appends complete records to a file.
class AppendFile {
 public:
  // Opens an existing file. Throws SystemError, as the other functions do.
  explicit AppendFile(const std::filesystem::path& path);
  // Adds all of the record or, when the disk is full, nothing: the file is then cut back to its
  // earlier length. Only a killed process may leave a part of a record.
  void append(std::string_view record);
  // Makes sure that the records are on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
};

}  // namespace ql
