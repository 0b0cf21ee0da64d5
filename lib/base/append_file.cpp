#include "base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/uninterrupted.h"

namespace ql {

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path),
      descriptor_(
          uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC); })) {
  if (descriptor_ < 0) throw SystemError(path_.string(), "open", errno);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view record) {
  const off_t length = ::lseek(descriptor_, 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t written =
        uninterrupted([&] { return ::write(descriptor_, record.data(), record.size()); });
    if (written <= 0) {
      const int reason = written < 0 ? errno : ENOSPC;
      const bool cut_back =
          length >= 0 && uninterrupted([&] { return ::ftruncate(descriptor_, length); }) == 0;
      throw SystemError(path_.string(), cut_back ? "write" : "write or shorten", reason);
    }
    record.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
    throw SystemError(path_.string(), "write", errno);
  }
}

}  // namespace ql
