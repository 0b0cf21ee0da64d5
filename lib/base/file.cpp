// Reads, writes and appends to files. A function that cannot transfer all bytes throws.

#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/data_input.h"
#include "base/error.h"
#include "base/process.h"

namespace ql {

Descriptor::Descriptor(const std::filesystem::path& path, int flags, const std::string& where,
                       const std::string& action)
    : number_(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); })) {
  if (number_ < 0) throw SystemError(where, action, errno);
}

void Descriptor::write(const void* data, std::size_t size, const std::string& where) const {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = uninterrupted([&] { return ::write(number_, bytes, size); });
    if (written <= 0) throw SystemError(where, "write", written < 0 ? errno : ENOSPC);
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

void Descriptor::become_standard_input(const std::string& where) const {
  if (uninterrupted([&] { return ::dup2(number_, STDIN_FILENO); }) < 0) {
    throw SystemError(where, "replace standard input", errno);
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::string read_file(const fs::path& path, std::int64_t limit) {
  return read_content(path == "-" ? "./-" : path.string(), Content::kAnything, limit);
}

bool is_inside_path(const fs::path& path) {
  if (path.empty() || path.is_absolute() || path.has_root_name()) return false;
  if (path.native().find('\0') != std::string::npos) return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

// O_NONBLOCK lets the check below refuse a named pipe. Without it, open() would wait for a writer.
RandomAccessFile::RandomAccessFile(const std::filesystem::path& path)
    : name_(path.string()), descriptor_(path, O_RDONLY | O_NONBLOCK, name_) {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw SystemError(name_, "examine", errno);
  if (!S_ISREG(status.st_mode)) {
    throw FormatError(name_, "this is not a regular file",
                      "give a file, not a folder, pipe or device");
  }
  size_ = status.st_size;
}

void RandomAccessFile::read(std::int64_t offset, void* data, std::size_t size) const {
  auto* out = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = uninterrupted([&] { return ::pread(descriptor_, out, size, offset); });
    if (got < 0) throw SystemError(name_, "read", errno);
    if (got == 0) {
      throw FormatError(name_, fmt::format("too short: expected {} bytes, found {} or fewer",
                                           offset + static_cast<std::int64_t>(size), offset));
    }
    out += got;
    offset += got;
    size -= static_cast<std::size_t>(got);
  }
}

std::string RandomAccessFile::text(std::int64_t limit) const {
  if (size_ > limit) {
    throw FormatError(name_, fmt::format("the file is larger than {} bytes", limit),
                      "is it the right file?");
  }
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, text.data(), text.size());
  return text;
}

std::string RandomAccessFile::head() const {
  std::string head(std::min(static_cast<std::size_t>(size_), kHeadBytes), '\0');
  read(0, head.data(), head.size());
  return head;
}

bool RandomAccessFile::hard_link(const std::filesystem::path& name) const {
  const std::string opened = fmt::format("/proc/self/fd/{}", int{descriptor_});
  return ::linkat(AT_FDCWD, opened.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

std::string RandomAccessFile::hash(bool may_be_stopped) const {
  ContentHasher hasher;
  std::string buffer(std::size_t{1} << 20, '\0');
  for (std::int64_t offset = 0; offset < size_;) {
    if (may_be_stopped) check_for_stop();
    const auto part =
        std::min<std::int64_t>(size_ - offset, static_cast<std::int64_t>(buffer.size()));
    read(offset, buffer.data(), static_cast<std::size_t>(part));
    hasher.update(buffer.data(), static_cast<std::size_t>(part));
    offset += part;
  }
  return hasher.digest();
}

NewFile::NewFile(const std::filesystem::path& path, std::string shown_name)
    : shown_name_(std::move(shown_name)),
      descriptor_(path, O_WRONLY | O_CREAT | O_EXCL, shown_name_, "create") {}

void NewFile::write(const void* data, std::size_t size) {
  if (buffer_.size() + size > kBufferBytes) flush();
  if (size > kBufferBytes) {
    descriptor_.write(data, size, shown_name_);
  } else {
    buffer_.append(static_cast<const char*>(data), size);
  }
}

void NewFile::flush() {
  descriptor_.write(buffer_.data(), buffer_.size(), shown_name_);
  buffer_.clear();
}

void NewFile::close() {
  flush();
  if (!descriptor_.close()) throw SystemError(shown_name_, "write", errno);
}

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), descriptor_(path, O_WRONLY | O_APPEND, path.string()) {}

void AppendFile::append(std::string_view record) {
  const off_t length = ::lseek(descriptor_, 0, SEEK_END);
  if (length < 0) throw SystemError(path_.string(), "find the end", errno);
  try {
    descriptor_.write(record.data(), record.size(), path_.string());
  } catch (...) {
    if (uninterrupted([&] { return ::ftruncate(descriptor_, length); }) == 0) throw;
    throw SystemError(path_.string(), "remove the incomplete end that a failed write left", errno);
  }
}

void AppendFile::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
    throw SystemError(path_.string(), "write", errno);
  }
}

}  // namespace ql
