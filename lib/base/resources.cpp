#include "base/resources.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/control_group.h"

namespace ql {

namespace {

// Returns the numbers of a CPU's package and core; a CPU without them counts as a core of its own.
std::pair<std::string, std::string> core_of(int cpu) {
  const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
  std::string package, core;
  std::ifstream(folder + "physical_package_id") >> package;
  std::ifstream(folder + "core_id") >> core;
  return core.empty() ? std::pair{std::string("cpu"), std::to_string(cpu)}
                      : std::pair{package, core};
}

}  // namespace

int usable_cores() {
  cpu_set_t allowed;
  std::set<std::pair<std::string, std::string>> cores;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) cores.insert(core_of(cpu));
    }
  }
  int count = std::max(1, static_cast<int>(cores.size()));
  if (const std::optional<double> limit = control_group_limits().cores) {
    count = std::max(1, static_cast<int>(std::min<double>(count, std::ceil(*limit))));
  }
  return count;
}

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
  available = std::min(available, control_group_limits().unused_memory.value_or(kUnknown));
  return available == kUnknown ? 0 : std::max<std::int64_t>(1, available);
}

}  // namespace ql
