#include "base/descriptor.h"

#include <fcntl.h>

#include "base/error.h"

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

}  // namespace ql
