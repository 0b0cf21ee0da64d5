// Reads the limits of control groups, the memory in use and the CPUs' cores from /proc and /sys.

#include "base/resources.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace ql {

namespace fs = std::filesystem;

namespace {

// Control groups of version 1 have a hierarchy for each controller. Version 2 has one hierarchy for
// all controllers. A host may have both versions.
struct Hierarchy {
  std::string controller;  // "": version 2
  std::vector<std::string> group;
};

struct Mount {
  std::vector<std::string> root;  // the group that is mounted
  fs::path folder;
  // The options of the mount, which include its controllers; {""} for control groups of version 2.
  std::vector<std::string> controllers;
};

// Returns {"a", "b"} for "/a/b". Names ".." stay; they come first, in the path of a group outside
// our namespace of control groups.
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names = split(path, '/');
  names.erase(std::remove(names.begin(), names.end(), ""), names.end());
  return names;
}

// Replaces the escapes of mountinfo, a backslash and three octal digits, by their characters.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '\\' && i + 3 < text.size() && text.find_first_not_of("01234567", i + 1) > i + 3;
    plain += escape ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    if (escape) i += 3;
  }
  return plain;
}

// Reads /proc/self/cgroup. Its lines are "NUMBER:CONTROLLER,CONTROLLER:PATH". In version 2 the line
// has no controllers.
std::vector<Hierarchy> read_hierarchies(const fs::path& root) {
  std::vector<Hierarchy> hierarchies;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    for (const std::string& controller : split(line.substr(first + 1, second - first - 1), ',')) {
      if (controller.empty() || controller == "cpu" || controller == "memory") {
        hierarchies.push_back({controller, names_in(line.substr(second + 1))});
      }
    }
  }
  return hierarchies;
}

// Reads /proc/self/mountinfo. Its lines are "ID PARENT DEVICE ROOT FOLDER OPTION... - TYPE SOURCE
// OPTIONS".
std::vector<Mount> read_mounts(const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    if (dash[1] != "cgroup" && dash[1] != "cgroup2") continue;
    mounts.push_back({names_in(unescaped(words[3])),
                      root / fs::path(unescaped(words[4])).relative_path(),
                      split(dash[1] == "cgroup" ? dash[3] : "", ',')});
  }
  return mounts;
}

fs::path joined(fs::path folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) folder /= name;
  return folder;
}

bool has_this_process(const fs::path& group) {
  std::ifstream file(group / "cgroup.procs");
  for (pid_t process = 0; file >> process;) {
    if (process == ::getpid()) return true;
  }
  return false;
}

// Returns the folder of this process's control group, or nothing if there is none. The path of this
// folder is `folder`, `depth` unknown names, and `rest`.
std::optional<fs::path> find_group(const fs::path& folder, std::ptrdiff_t depth,
                                   const std::vector<std::string>& rest) {
  if (depth == 0) {
    const fs::path group = joined(folder, rest);
    return has_this_process(group) ? std::optional(group) : std::nullopt;
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    if (auto found = find_group(entry.path(), depth - 1, rest)) return found;
  }
  return std::nullopt;
}

// Returns the folder of `group`, or nothing if the mount lacks it.
std::optional<fs::path> folder_of(const std::vector<std::string>& group, const Mount& mount) {
  const auto [in_root, in_group] =
      std::mismatch(mount.root.begin(), mount.root.end(), group.begin(), group.end());
  const std::vector<std::string> rest(in_group, group.end());
  if (in_root == mount.root.end()) return joined(mount.folder, rest);
  // The mount may begin above the root of our namespace of control groups. mount.root then ends
  // with ".." for each level in between. The names of these levels are unknown, so all are tried.
  const bool above =
      std::all_of(in_root, mount.root.end(), [](const std::string& name) { return name == ".."; });
  return above ? find_group(mount.folder, mount.root.end() - in_root, rest) : std::nullopt;
}

// Returns the folders of our control group and of the groups above it. In a container, it may be
// that no mount has a path to our group. Then the mounted folder is the container's group.
std::vector<fs::path> group_folders(const Hierarchy& hierarchy, const std::vector<Mount>& mounts) {
  std::optional<fs::path> top, bottom;
  for (const Mount& mount : mounts) {
    const auto& all = mount.controllers;
    if (bottom || std::find(all.begin(), all.end(), hierarchy.controller) == all.end()) continue;
    bottom = folder_of(hierarchy.group, mount);
    if (bottom || !top) top = mount.folder;
  }
  std::vector<fs::path> folders;
  if (!top) return folders;
  for (fs::path folder = bottom.value_or(*top); folder != *top; folder = folder.parent_path()) {
    folders.push_back(folder);
  }
  folders.push_back(*top);
  return folders;
}

// Returns `numbers` followed by the numbers at the beginning of the file, up to the first word that
// is not a number ("max").
std::vector<std::int64_t> numbers_in(const fs::path& path, std::vector<std::int64_t> numbers = {}) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    const std::optional<std::int64_t> number = parse_integer(word);
    if (!number) break;
    numbers.push_back(*number);
  }
  return numbers;
}

// Returns the bytes of cached files that a control group and the groups below it hold in memory,
// and of the kernel's caches that it gives up like these.
// The file `statistics` has these sums under names that begin with `prefix`: "total_" for control
// groups of version 1, and "" for version 2.
std::int64_t cached_files(const fs::path& statistics, const std::string& prefix) {
  std::ifstream file(statistics);
  std::int64_t sum = 0, value = 0;
  for (std::string name; file >> name >> value;) {
    const bool given_up = name == prefix + "inactive_file" || name == prefix + "active_file" ||
                          name == prefix + "slab_reclaimable";
    if (given_up) sum += value;
  }
  return sum;
}

template <typename Number>
void lower(std::optional<Number>& least, Number value) {
  least = std::min(least.value_or(value), value);
}

void lower_cores(const std::vector<std::int64_t>& quota_and_period, ControlGroupLimits& limits) {
  if (quota_and_period.size() < 2 || quota_and_period[0] <= 0 || quota_and_period[1] <= 0) return;
  lower(limits.cores,
        static_cast<double>(quota_and_period[0]) / static_cast<double>(quota_and_period[1]));
}

void lower_memory(const fs::path& folder, const char* limit_name, const char* use_name,
                  const std::string& prefix, ControlGroupLimits& limits) {
  // Without a limit, control groups of version 1 state a number of bytes just below 2^63.
  constexpr std::int64_t kUnlimited = std::int64_t{1} << 62;
  const std::vector<std::int64_t> limit = numbers_in(folder / limit_name);
  if (limit.empty() || limit[0] < 0 || limit[0] >= kUnlimited) return;
  const std::vector<std::int64_t> use = numbers_in(folder / use_name);
  const std::int64_t cached = cached_files(folder / "memory.stat", prefix);
  lower(limits.unused_memory, limit[0] - (use.empty() ? 0 : use[0] - cached));
}

}  // namespace

ControlGroupLimits control_group_limits(const fs::path& root) {
  ControlGroupLimits limits;
  const std::vector<Mount> mounts = read_mounts(root);
  for (const Hierarchy& hierarchy : read_hierarchies(root)) {
    for (const fs::path& folder : group_folders(hierarchy, mounts)) {
      if (hierarchy.controller.empty()) {
        lower_cores(numbers_in(folder / "cpu.max"), limits);
        lower_memory(folder, "memory.max", "memory.current", "", limits);
      } else if (hierarchy.controller == "cpu") {
        const std::vector<std::int64_t> quota = numbers_in(folder / "cpu.cfs_quota_us");
        lower_cores(numbers_in(folder / "cpu.cfs_period_us", quota), limits);
      } else {
        lower_memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_", limits);
      }
    }
  }
  return limits;
}

// Returns the list of the CPUs of this CPU's core, such as "0,4". (The number of a core is not
// unique: it may begin anew in each cluster of a package.) A CPU without a list counts as a core of
// its own.
static std::string core_of(int cpu) {
  std::string siblings;
  std::ifstream(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)) >>
      siblings;
  return siblings.empty() ? std::to_string(cpu) : siblings;
}

int usable_cores() {
  // The system call fails with EINVAL if the machine may have more processors than the sets hold.
  std::vector<cpu_set_t> allowed(1);
  const auto bytes = [&] { return allowed.size() * sizeof(cpu_set_t); };
  int failed = 0;
  while ((failed = ::sched_getaffinity(0, bytes(), allowed.data())) != 0 && errno == EINVAL &&
         allowed.size() < 64) {
    allowed.resize(2 * allowed.size());
  }
  std::set<std::string> cores;
  for (std::size_t cpu = 0; failed == 0 && cpu < 8 * bytes(); ++cpu) {
    if (CPU_ISSET_S(cpu, bytes(), allowed.data())) cores.insert(core_of(static_cast<int>(cpu)));
  }
  const auto found = static_cast<double>(cores.size());
  const double quota = std::ceil(control_group_limits().cores.value_or(found));
  return std::max(1, static_cast<int>(std::min(found, quota)));
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

// Lowers `available` to what ulimit -v and ulimit -d leave. /proc/self/statm has the pages in use:
// all of the address space first, and data with stacks in sixth place.
static void lower_by_limits(std::int64_t& available) {
  const std::vector<std::int64_t> pages = numbers_in("/proc/self/statm");
  if (pages.size() < 6) return;
  const std::pair<int, std::int64_t> limits[] = {{RLIMIT_AS, pages[0]}, {RLIMIT_DATA, pages[5]}};
  for (const auto& [resource, used] : limits) {
    struct rlimit limit {};
    // RLIM_INFINITY does not fit into a signed number.
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
        limit.rlim_cur >= rlim_t{1} << 62) {
      continue;
    }
    const auto bytes = static_cast<std::int64_t>(limit.rlim_cur);
    available = std::min(available, bytes - used * ::sysconf(_SC_PAGESIZE));
  }
}

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// Holds bytes; kUnknown: not known.
struct SystemMemory {
  std::int64_t available = kUnknown, swap = 0;
};

// Reads what the system and the control groups leave.
static SystemMemory system_memory() {
  SystemMemory memory;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const auto bytes = [&] { return std::stoll(line.substr(line.find(':') + 1)) * 1024; };
    if (line.rfind("MemAvailable:", 0) == 0) memory.available = bytes();
    if (line.rfind("SwapFree:", 0) == 0) memory.swap = bytes();
  }
  const std::int64_t unused = control_group_limits().unused_memory.value_or(kUnknown);
  memory.available = std::min(memory.available, unused);
  return memory;
}

bool system_has(std::int64_t bytes) {
  const SystemMemory memory = system_memory();
  return memory.available == kUnknown || bytes - memory.available <= memory.swap;
}

std::int64_t available_bytes() {
  std::int64_t available = system_memory().available;
  lower_by_limits(available);
  return available == kUnknown ? 0 : std::max<std::int64_t>(1, available);
}

}  // namespace ql
