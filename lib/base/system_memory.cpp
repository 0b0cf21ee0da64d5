#include "base/system_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace ql {
namespace {

// The number at the beginning of a file; `otherwise` when there is none ("max").
std::int64_t number_in(const char* path, std::int64_t otherwise) {
  std::int64_t number = 0;
  std::ifstream file(path);
  return file >> number ? number : otherwise;
}

}  // namespace

std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream file("/proc/self/statm");
  return file >> pages >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t peak_resident_bytes() {
  struct rusage usage {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? std::int64_t{usage.ru_maxrss} * 1024 : 0;
}

std::int64_t available_bytes() {
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  std::int64_t available = kUnknown;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) {
      available = std::stoll(line.substr(line.find(':') + 1)) * 1024;
    }
  }
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max", kUnknown);
  if (limit != kUnknown) {
    const std::int64_t used = number_in("/sys/fs/cgroup/memory.current", 0);
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  }
  return available == kUnknown ? 0 : available;
}

}  // namespace ql
