#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/uninterrupted.h"

namespace ql {

MappedFile::MappedFile(const fs::path& path) {
  // O_NONBLOCK: opening a named pipe must fail the check below, not wait for a writer.
  const int descriptor =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) throw SystemError(path.string(), "open", errno);
  struct stat status = {};
  int failed = ::fstat(descriptor, &status) != 0 ? errno : 0;
  if (failed == 0 && S_ISDIR(status.st_mode)) failed = EISDIR;
  if (failed == 0 && !S_ISREG(status.st_mode)) failed = ENODEV;
  size_ = static_cast<std::size_t>(status.st_size);
  if (failed == 0 && size_ > 0) {
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (map == MAP_FAILED) {
      failed = errno;
    } else {
      data_ = static_cast<const unsigned char*>(map);
    }
  }
  ::close(descriptor);
  if (failed != 0) throw SystemError(path.string(), "map into memory", failed);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace ql
