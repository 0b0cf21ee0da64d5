#include "base/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace ql {

namespace {

// The CPUs' numbers of package and core; a CPU without them counts as a core of its own.
std::pair<std::string, std::string> core_of(int cpu) {
  const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
  std::string package, core;
  std::ifstream(folder + "physical_package_id") >> package;
  std::ifstream(folder + "core_id") >> core;
  return core.empty() ? std::pair{std::string("cpu"), std::to_string(cpu)}
                      : std::pair{package, core};
}

// CPUs' worth of time that the control group grants; 0: no limit.
double quota() {
  std::string limit;
  double period = 0;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  if (!(file >> limit >> period) || limit == "max" || period <= 0) return 0;
  double granted = 0;
  std::istringstream(limit) >> granted;
  return granted / period;
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

}  // namespace ql
