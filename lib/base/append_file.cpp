#include "base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace ql {

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), descriptor_(path, O_WRONLY | O_APPEND, path.string()) {}

void AppendFile::append(std::string_view record) {
  const off_t length = ::lseek(descriptor_, 0, SEEK_END);
  try {
    descriptor_.write(record.data(), record.size(), path_.string());
  } catch (...) {
    if (length >= 0 && uninterrupted([&] { return ::ftruncate(descriptor_, length); }) == 0) throw;
    throw SystemError(path_.string(), "write or shorten", errno);
  }
}

void AppendFile::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
    throw SystemError(path_.string(), "write", errno);
  }
}

}  // namespace ql
