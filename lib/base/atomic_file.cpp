#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_internal.h"

namespace ql {

namespace internal {

void sync_path(const fs::path& path, const std::string& where) {
  const Descriptor file(path, O_RDONLY, where, "open for fsync");
  const bool synced = uninterrupted([&] { return ::fsync(file); }) == 0;
  if (!synced && errno != EINVAL) throw SystemError(where, "fsync", errno);
}

}  // namespace internal

namespace {

// Follows the symbolic links at `path`: the file is replaced at their end, and the links stay. A
// link of /proc, as behind /dev/stdout, stands for an open file, which renaming cannot replace.
fs::path behind_links(const fs::path& path, const std::string& advice) {
  constexpr int kMostLinks = 40;
  fs::path target = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) throw SystemError(path.string(), "write", ELOOP);
    const fs::path folder = internal::folder_of(target);
    if (fs::canonical(folder, error).native().rfind("/proc/", 0) == 0) {
      throw Error(path.string(), "this stands for an open file, expected the name of a file",
                  advice);
    }
    const fs::path next = fs::read_symlink(target, error);
    if (error) throw SystemError(path.string(), "read the link", error.value());
    target = internal::final_path(folder / next);
  }
  return target;
}

// Returns the name to write to, and refuses what is no file: renaming over a device would replace
// it for everybody.
fs::path file_to_write(const fs::path& named, const std::string& advice) {
  const fs::path path = internal::final_path(named);
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw SystemError(path.string(), "write", EISDIR);
    if (!S_ISREG(status.st_mode)) {
      throw Error(path.string(), "this is a device or pipe, expected the name of a file", advice);
    }
  }
  return behind_links(path, advice);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path, const std::string& device_advice)
    : path_(file_to_write(path, device_advice)),
      temporary_(path_),
      descriptor_(temporary_.path, O_WRONLY | O_CREAT | O_EXCL, path_.string(), "create") {}

void AtomicFile::write(const void* data, std::size_t size) {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::write after commit");
  descriptor_.write(data, size, path_.string());
  size_ += static_cast<std::int64_t>(size);
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::commit twice");
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
    throw SystemError(path_.string(), "fsync", errno);
  }
  if (!descriptor_.close()) throw SystemError(path_.string(), "close", errno);
  if (::rename(temporary_.path.c_str(), path_.c_str()) != 0) {
    throw SystemError(path_.string(), "rename into place", errno);
  }
  temporary_.release();
  internal::sync_path(internal::folder_of(path_), path_.string());
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace ql
