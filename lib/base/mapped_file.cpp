#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"

namespace ql {

MappedFile::MappedFile(const fs::path& path) {
  // O_NONBLOCK: opening a named pipe must fail the check below, not wait for a writer.
  const Descriptor file(path, O_RDONLY | O_NONBLOCK, path.string());
  struct stat status = {};
  int failed = ::fstat(file, &status) != 0 ? errno : 0;
  if (failed == 0 && S_ISDIR(status.st_mode)) failed = EISDIR;
  if (failed == 0 && !S_ISREG(status.st_mode)) failed = ENODEV;
  size_ = static_cast<std::size_t>(status.st_size);
  if (failed == 0 && size_ > 0) {
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
      failed = errno;
    } else {
      data_ = static_cast<const unsigned char*>(map);
    }
  }
  if (failed != 0) throw SystemError(path.string(), "map into memory", failed);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace ql
