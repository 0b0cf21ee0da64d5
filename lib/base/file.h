// Opens files, reads them at any offset, and appends records to them.
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

// Repeats a system call that a signal interrupted before the call did anything (EINTR). This
// function must not be used for close().
template <typename Call>
auto uninterrupted(const Call& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Owns the descriptor of an open file, socket or pipe end, and closes it. A negative number means
// that nothing is open.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  // Opens a file that child processes do not inherit. Throws SystemError(where, action, errno).
  Descriptor(const std::filesystem::path& path, int flags, const std::string& where,
             const std::string& action = "open");
  // Move construction is forbidden here, and thereby in every class with a Descriptor, because
  // other objects may hold pointers to an object of such a class.
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  operator int() const { return number_; }
  // Writes everything or throws SystemError(where, "write", errno).
  void write(const void* data, std::size_t size, const std::string& where) const;
  // Makes the file standard input, too, or throws SystemError(where, "replace standard input",
  // errno).
  void become_standard_input(const std::string& where) const;
  // Returns false and sets errno when the written data may not have arrived. EINTR does not count
  // as a failure: on Linux an interrupted close() has closed the descriptor.
  bool close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0 || errno == EINTR;
  }

 private:
  int number_;
};

namespace fs = std::filesystem;

// Returns the folder that holds `path`, "." for a plain name.
fs::path folder_of(const fs::path& path);

// Returns a file's content. Throws SystemError, and Error for a file of more than `limit` bytes.
std::string read_file(const fs::path& path, std::int64_t limit = INT64_MAX);

// Returns true when `path` stays inside the folder that it starts from: it is not empty, is
// relative, and has neither ".." nor NUL. Every path that is read from a file must be of this kind.
bool is_inside_path(const fs::path& path);

// RandomAccessFile, NewFile and AppendFile are classes for regular files.

// Reads a file at any offset. The class uses pread, not a memory map, so that a file that is
// shortened during the reading gives an error instead of a signal.
class RandomAccessFile {
 public:
  // Throws SystemError, and FormatError for a path that is not a regular file.
  explicit RandomAccessFile(const std::filesystem::path& path);
  std::int64_t size() const { return size_; }
  // Reads exactly `size` bytes from `offset`. Throws FormatError when the file ends too early.
  void read(std::int64_t offset, void* data, std::size_t size) const;
  // Returns the complete content. Throws FormatError when the content is more than `limit` bytes.
  std::string text(std::int64_t limit) const;
  // Gives the opened file another name (a hard link), even if the file was renamed since. Returns
  // false when that fails, for example because the file has lost all its names.
  bool hard_link(const std::filesystem::path& name) const;
  // Returns the first bytes, at most kHeadBytes (base/file_kind.h).
  std::string head() const;
  // Returns content_hash() of the content. Throws Interrupted after a stop signal if
  // `may_be_stopped`.
  std::string hash(bool may_be_stopped = true) const;

 private:
  std::string name_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

// Creates a file that must not exist yet. Errors name `shown_name`, which the user knows, and not
// the temporary folder around the file. Small writes are collected.
class NewFile {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{256} << 10;  // of collected writes

  NewFile(const std::filesystem::path& path, std::string shown_name);
  void write(const void* data, std::size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Writes what was collected, and closes the file. Throws SystemError. Call it after the last
  // write.
  void close();

 private:
  void flush();

  std::string shown_name_, buffer_;
  Descriptor descriptor_;
};

// Appends complete records to a file.
class AppendFile {
 public:
  // Opens an existing file. Throws SystemError, as the other functions do.
  explicit AppendFile(const std::filesystem::path& path);
  // Adds all of `record`. After an error, such as a full disk, the file is cut back to its earlier
  // length. A part of a record remains only if the process is killed or the file cannot be cut.
  void append(std::string_view record);
  // Makes sure that the records are on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
};

}  // namespace ql
