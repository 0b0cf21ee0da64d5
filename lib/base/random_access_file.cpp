#include "base/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/file_kind.h"
#include "base/hash.h"
#include "base/signals.h"

namespace ql {

// O_NONBLOCK lets a named pipe fail the check below, instead of waiting for a writer.
RandomAccessFile::RandomAccessFile(const std::filesystem::path& path)
    : name_(path.string()), descriptor_(path, O_RDONLY | O_NONBLOCK, name_) {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw SystemError(name_, "examine", errno);
  if (!S_ISREG(status.st_mode)) throw FormatError(name_, "not a regular file");
  size_ = status.st_size;
}

void RandomAccessFile::read(std::int64_t offset, void* data, std::size_t size) const {
  auto* out = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = uninterrupted([&] { return ::pread(descriptor_, out, size, offset); });
    if (got < 0) throw SystemError(name_, "read", errno);
    if (got == 0) {
      throw FormatError(name_,
                        fmt::format("the file ends at byte {}, {} bytes too early", offset, size));
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
  descriptor_.write(data, size, shown_name_);
}

void NewFile::close() {
  if (!descriptor_.close()) throw SystemError(shown_name_, "write", errno);
}

}  // namespace ql
