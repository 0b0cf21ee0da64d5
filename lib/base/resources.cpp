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
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

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

// Returns how many CPUs' worth of time the control group grants; 0: no limit.
double quota() {
  std::string limit;
  double period = 0;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  if (!(file >> limit >> period) || limit == "max" || period <= 0) return 0;
  double granted = 0;
  std::istringstream(limit) >> granted;
  return granted / period;
}

// The number at the beginning of a file; `otherwise` when there is none ("max").
std::int64_t number_in(const char* path, std::int64_t otherwise) {
  std::int64_t number = 0;
  std::ifstream file(path);
  return file >> number ? number : otherwise;
}

// Bytes of files that a control group holds in memory.
std::int64_t cached_files(const char* statistics) {
  std::ifstream file(statistics);
  std::int64_t sum = 0, value = 0;
  for (std::string name; file >> name >> value;) {
    sum += name == "inactive_file" || name == "active_file" ? value : 0;
  }
  return sum;
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
  if (const double limit = quota(); limit > 0) {
    count = std::min(count, std::max(1, static_cast<int>(std::ceil(limit))));
  }
  return count;
}

std::optional<double> seconds_without_core() {
  constexpr double kNanosecond = 1e-9;
  std::optional<double> sum;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "schedstat");
    double computed = 0, waited = 0;
    if (file >> computed >> waited) sum = sum.value_or(0) + kNanosecond * waited;
  }
  return sum;
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
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max", kUnknown);
  if (limit != kUnknown) {
    // The group's use counts its cache of files, which it gives up when it must.
    const std::int64_t used =
        number_in("/sys/fs/cgroup/memory.current", 0) - cached_files("/sys/fs/cgroup/memory.stat");
    available = std::min(available, limit - used);
  }
  return available == kUnknown ? 0 : std::max<std::int64_t>(1, available);
}

}  // namespace ql
