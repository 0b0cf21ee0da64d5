#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/file_internal.h"
#include "base/uninterrupted.h"

namespace ql {

namespace internal {

void write_all(int descriptor, const void* data, std::size_t size, const std::string& where) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor, bytes, size); });
    if (written < 0) throw SystemError(where, "write", errno);
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

void sync_path(const fs::path& path, const std::string& where) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (descriptor < 0) throw SystemError(where, "open for fsync", errno);
  const int failed = uninterrupted([&] { return ::fsync(descriptor); }) != 0 ? errno : 0;
  ::close(descriptor);
  if (failed != 0 && failed != EINVAL) throw SystemError(where, "fsync", failed);
}

}  // namespace internal

namespace {

// Follows the symbolic links at `path`: the file is replaced at their end, and the links stay. A
// link of /proc, as behind /dev/stdout, stands for an open file, which renaming cannot replace.
fs::path behind_links(const fs::path& path) {
  constexpr int kMostLinks = 40;
  fs::path target = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) throw SystemError(path.string(), "write", ELOOP);
    const fs::path folder = internal::folder_of(target);
    if (fs::canonical(folder, error).native().rfind("/proc/", 0) == 0) {
      throw Error(path.string(), "this stands for an open file, expected the name of a file",
                  "choose another name");
    }
    const fs::path next = fs::read_symlink(target, error);
    if (error) throw SystemError(path.string(), "read the link", error.value());
    target = internal::final_path(folder / next);
  }
  return target;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(internal::final_path(path)) {
  struct stat status = {};
  if (::stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw SystemError(path_.string(), "write", EISDIR);
    // Renaming over a device would replace it for everybody.
    if (!S_ISREG(status.st_mode)) {
      throw Error(path_.string(), "this is a device or pipe, expected the name of a file",
                  "choose another name");
    }
  }
  path_ = behind_links(path_);
  temporary_ = internal::claim_temporary(path_);
  descriptor_ = uninterrupted(
      [&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) {
    const int failed = errno;
    internal::release_temporary(temporary_);
    throw SystemError(path_.string(), "create", failed);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  internal::release_temporary(temporary_);
}

void AtomicFile::write(const void* data, std::size_t size) {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::write after commit");
  internal::write_all(descriptor_, data, size, path_.string());
  size_ += static_cast<std::int64_t>(size);
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::commit twice");
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
    throw SystemError(path_.string(), "fsync", errno);
  }
  const int failed = close_descriptor(std::exchange(descriptor_, -1)) != 0 ? errno : 0;
  if (failed == 0 && ::rename(temporary_.c_str(), path_.c_str()) == 0) {
    internal::release_temporary(temporary_);
    internal::sync_path(internal::folder_of(path_), path_.string());
    return;
  }
  const int rename_failed = errno;
  internal::release_temporary(temporary_);
  throw SystemError(path_.string(), failed != 0 ? "close" : "rename into place",
                    failed != 0 ? failed : rename_failed);
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace ql
