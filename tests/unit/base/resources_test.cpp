// Tests control groups, with files as kernels write them, and with a real group.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/resources.h"
#include "unit/scratch.h"

namespace ql {

namespace {

namespace fs = std::filesystem;

using Files = std::vector<std::pair<std::string, std::string>>;

void make_files(const fs::path& root, const Files& files) {
  for (const auto& [name, text] : files) {
    fs::create_directories((root / name).parent_path());
    test::spill(root / name, text);
  }
}

constexpr const char* kGroup = "proc/self/cgroup";
constexpr const char* kMounts = "proc/self/mountinfo";
// Mounts as systemd makes them: version 2 alone, version 1, both.
constexpr const char* kVersion2 =
    "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "31 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kVersion1 =
    "31 24 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/systemd rw shared:8 - cgroup cgroup rw,xattr,name=systemd\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/memory rw shared:10 master:2 - cgroup cgroup rw,memory\n";
constexpr const char* kHybrid =
    "31 24 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr const char* kGroups1 =
    "4:memory:/user.slice/job\n3:cpu,cpuacct:/user.slice/job\n2:cpuset:/\n1:name=systemd:/job\n"
    "0::/user.slice/job\n";

struct Case {
  const char* what;
  Files files;
  std::optional<double> cores;
  std::optional<std::int64_t> memory;
};

const Case kCases[] = {
    {"nothing at all", {}, {}, {}},
    {"no mounts", {{kGroup, "0::/\n"}}, {}, {}},
    {"no groups", {{kMounts, kVersion2}, {"sys/fs/cgroup/cpu.max", "50000 100000\n"}}, {}, {}},
    {"version 2: files that are missing", {{kGroup, "0::/a/b\n"}, {kMounts, kVersion2}}, {}, {}},
    {"version 2: a container's own namespace",
     {{kGroup, "0::/\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/cpu.max", "150000 100000\n"},
      {"sys/fs/cgroup/memory.max", "1000000\n"},
      {"sys/fs/cgroup/memory.swap.max", "10\n"}},
     1.5,
     1000000},
    {"version 2: a systemd unit",
     {{kGroup, "0::/system.slice/qltrain.service\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/system.slice/memory.max", "max\n"},
      {"sys/fs/cgroup/system.slice/qltrain.service/cpu.max", "200000 100000\n"},
      {"sys/fs/cgroup/system.slice/qltrain.service/memory.max", "5000\n"},
      {"sys/fs/cgroup/system.slice/other.service/memory.max", "1\n"}},
     2.0,
     5000},
    {"version 2: a lesser limit above, in each its own",
     {{kGroup, "0::/a/b/c\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"},
      {"sys/fs/cgroup/a/memory.max", "9000\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/b/memory.max", "4000\n"},
      {"sys/fs/cgroup/a/b/c/cpu.max", "300000 100000\n"},
      {"sys/fs/cgroup/a/b/c/memory.max", "8000\n"}},
     0.5,
     4000},
    {"version 2: the unused memory counts, and what the system gives up is not used",
     {{kGroup, "0::/a/b\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/a/memory.max", "9000\n"},
      {"sys/fs/cgroup/a/memory.current", "8000\n"},
      {"sys/fs/cgroup/a/memory.stat",
       "anon 7000\nfile 600\ninactive_file 500\nactive_file 100\nslab_reclaimable 50\n"},
      {"sys/fs/cgroup/a/b/memory.max", "3000\n"},
      {"sys/fs/cgroup/a/b/memory.current", "100\n"}},
     {},
     9000 - (8000 - 650)},
    {"version 2: more is taken than the limit",
     {{kGroup, "0::/a\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/a/memory.max", "9000\n"},
      {"sys/fs/cgroup/a/memory.current", "9500\n"}},
     {},
     -500},
    {"version 2: Slurm's job, step and task",
     {{kGroup, "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max", "6000\n"},
      {"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/memory.max", "6000\n"},
      {"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max", "max\n"}},
     {},
     6000},
    {"version 1: the group's own limits",
     {{kGroup, kGroups1},
      {kMounts, kVersion1},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/job/cpu.cfs_quota_us", "250000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/job/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.limit_in_bytes", "7000\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.memsw.limit_in_bytes", "10\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.usage_in_bytes", "1000\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.stat",
       "inactive_file 1\nactive_file 2\ntotal_inactive_file 100\ntotal_active_file 50\n"}},
     2.5,
     7000 - (1000 - 150)},
    {"version 1: no limits",
     {{kGroup, kGroups1},
      {kMounts, kVersion1},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/job/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/job/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.usage_in_bytes", "1000\n"}},
     {},
     {}},
    {"version 1: lesser limits above",
     {{kGroup, kGroups1},
      {kMounts, kVersion1},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/job/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/user.slice/job/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", "5000\n"},
      {"sys/fs/cgroup/memory/user.slice/job/memory.limit_in_bytes", "6000\n"}},
     1.0,
     5000},
    {"version 1: Slurm's task, a limit of the job",
     {{kGroup, "4:memory:/slurm/uid_1000/job_7/step_0/task_0\n"},
      {kMounts, kVersion1},
      {"sys/fs/cgroup/memory/slurm/uid_1000/job_7/memory.limit_in_bytes", "2000\n"},
      {"sys/fs/cgroup/memory/slurm/uid_1000/job_7/step_0/memory.limit_in_bytes",
       "9223372036854771712\n"}},
     {},
     2000},
    {"version 1: a container that sees its host's names, where its own group is mounted",
     {{kGroup, "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n"},
      {kMounts,
       "40 1 0:30 /docker/0123 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
       "41 1 0:31 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n"}},
     0.5,
     3000},
    {"a group below the one that is mounted",
     {{kGroup, "0::/docker/0123/work\n"},
      {kMounts, "40 1 0:30 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
      {"sys/fs/cgroup/memory.max", "3000\n"},
      {"sys/fs/cgroup/work/memory.max", "2000\n"}},
     {},
     2000},
    {"a mount that does not have our group by its name",
     {{kGroup, "0::/kubepods/pod1/0123\n"},
      {kMounts, "40 1 0:30 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
      {"sys/fs/cgroup/memory.max", "3000\n"}},
     {},
     3000},
    {"another's mount before the one that has our group",
     {{kGroup, "0::/job\n"},
      {kMounts,
       "40 1 0:30 /other /mnt/other rw - cgroup2 cgroup rw\n"
       "41 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"},
      {"mnt/other/memory.max", "1\n"},
      {"sys/fs/cgroup/job/memory.max", "3000\n"}},
     {},
     3000},
    {"a group outside the root of the namespace, which is mounted: the root's limit",
     {{kGroup, "0::/../job\n"}, {kMounts, kVersion2}, {"sys/fs/cgroup/memory.max", "3000\n"}},
     {},
     3000},
    {"a group outside the root of the namespace, and a mount that begins above",
     {{kGroup, "0::/../job\n"},
      {kMounts, "31 24 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/job/memory.max", "3000\n"}},
     {},
     3000},
    {"a namespace in the mounts of the host: the group is the one that has this process",
     {{kGroup, "0::/work\n"},
      {kMounts, "31 24 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/slice/memory.max", "8000\n"},
      {"sys/fs/cgroup/slice/one/work/cgroup.procs", "1\n"},
      {"sys/fs/cgroup/slice/one/work/memory.max", "1000\n"},
      {"sys/fs/cgroup/slice/two/work/cgroup.procs", fmt::format("1\n{}\n", ::getpid())},
      {"sys/fs/cgroup/slice/two/work/memory.max", "2000\n"}},
     {},
     2000},
    {"both versions: memory by version 1, processors by version 2",
     {{kGroup, "1:memory:/a\n0::/b\n"},
      {kMounts, kHybrid},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000\n"},
      {"sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1\n"},
      {"sys/fs/cgroup/unified/b/cpu.max", "300000 100000\n"},
      {"sys/fs/cgroup/unified/a/cpu.max", "100000 100000\n"}},
     3.0,
     3000},
    {"blanks and colons in names",
     {{kGroup, "0::/a b:c\n"},
      {kMounts, "31 24 0:26 / /sys/fs/my\\040groups rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/my groups/a b:c/memory.max", "3000\n"}},
     {},
     3000},
    {"garbage",
     {{kGroup, "\n:\n0:\n::\nx\n0::/a\n"},
      {kMounts,
       "\n- - -\n1 2 3\n- cgroup2\n31 24 0:26 / /sys\\9 rw - cgroup2 cgroup2 rw\n"
       "31 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/a/cpu.max", "fast 100000\n"},
      {"sys/fs/cgroup/a/memory.max", "99999999999999999999\n"},
      {"sys/fs/cgroup/cpu.max", "100000 0\n"},
      {"sys/fs/cgroup/memory.max", ""}},
     {},
     {}},
    {"use that cannot be read",
     {{kGroup, "0::/a\n"},
      {kMounts, kVersion2},
      {"sys/fs/cgroup/a/cpu.max", "100000\n"},
      {"sys/fs/cgroup/a/memory.max", "4000\n"},
      {"sys/fs/cgroup/a/memory.current", "?\n"},
      {"sys/fs/cgroup/a/memory.stat", "inactive_file many\n"}},
     {},
     4000},
};

// Makes a group with the given limits below ours, as far as this machine allows it. Version 1 has a
// folder for each controller below this one.
class RealGroup {
 public:
  explicit RealGroup(const std::string& controller) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const std::size_t place = line.find(":" + controller + ":");
      if (place == std::string::npos) continue;
      const fs::path mount = fs::path("/sys/fs/cgroup") / controller;
      const fs::path group = fs::path(line.substr(place + controller.size() + 2)).relative_path();
      folder_ = mount / group / fmt::format("ql-unit-{}", ::getpid());
    }
    std::error_code error;
    made_ = !folder_.empty() && fs::create_directory(folder_, error) &&
            fs::exists(folder_ / "cgroup.procs", error);
  }
  ~RealGroup() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  RealGroup(const RealGroup&) = delete;
  RealGroup& operator=(const RealGroup&) = delete;

  // Returns false when the group or the limit does not exist.
  bool set(const std::string& name, const std::string& value) const {
    return made_ && fs::exists(folder_ / name) && write(name, value);
  }
  bool join() const { return made_ && write("cgroup.procs", std::to_string(::getpid())); }

 private:
  bool write(const std::string& name, const std::string& value) const {
    std::ofstream file(folder_ / name);
    return static_cast<bool>(file << value << std::flush);
  }

  fs::path folder_;
  bool made_ = false;
};

}  // namespace

TEST_CASE("control_group_limits: files of both versions") {
  for (const Case& one : kCases) {
    CAPTURE(one.what);
    const test::ScratchFolder root;
    make_files(root.path(), one.files);
    const ControlGroupLimits limits = control_group_limits(root.path());
    CHECK(limits.cores.value_or(-1) == one.cores.value_or(-1));
    CHECK(limits.unused_memory.value_or(-1) == one.memory.value_or(-1));
  }
}

TEST_CASE("control_group_limits: a real control group") {
  constexpr std::int64_t kBytes = 64 << 20;
  const std::string bytes = std::to_string(kBytes);
  bool tried = false;
  {
    const RealGroup both(""), one("cpu");
    if (both.set("cpu.max", "70000 100000") ||
        (one.set("cpu.cfs_period_us", "100000") && one.set("cpu.cfs_quota_us", "70000"))) {
      tried = true;
      CHECK(test::in_child([&] {
              if (!both.join() && !one.join()) return 1;
              return control_group_limits().cores == 0.7 ? 0 : 2;
            }).exit_code == 0);
    }
  }
  {
    const RealGroup both(""), one("memory");
    if (both.set("memory.max", bytes) || one.set("memory.limit_in_bytes", bytes)) {
      tried = true;
      CHECK(test::in_child([&] {
              if (!both.join() && !one.join()) return 1;
              const std::int64_t unused = control_group_limits().unused_memory.value_or(0);
              return unused > kBytes / 2 && unused <= kBytes ? 0 : 2;
            }).exit_code == 0);
    }
  }
  if (!tried) MESSAGE("skipped: this process may not make control groups with limits");
}

TEST_CASE("system_has: the system has room for little, and not for everything") {
  CHECK(system_has(1 << 20));
  CHECK_FALSE(system_has(std::int64_t{1} << 50));
}

TEST_CASE("available_bytes: has at most what ulimit -v and -d leave") {
  constexpr std::int64_t kLeft = 64 << 20;
  for (const bool of_data : {false, true}) {
    CAPTURE(of_data);
    CHECK(test::in_child([of_data] {
            // A second way to the memory in use: the sum of the mappings that the limit counts.
            std::int64_t used = 0;
            std::ifstream status("/proc/self/status");
            for (std::string line; std::getline(status, line);) {
              const bool counts =
                  of_data ? line.rfind("VmData:", 0) == 0 || line.rfind("VmStk:", 0) == 0
                          : line.rfind("VmSize:", 0) == 0;
              if (counts) used += std::stoll(line.substr(line.find(':') + 1)) * 1024;
            }
            const std::int64_t before = std::min(available_bytes(), +kLeft);
            struct rlimit limit {};
            limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(used + kLeft);
            if (::setrlimit(of_data ? RLIMIT_DATA : RLIMIT_AS, &limit) != 0) return 1;
            const std::int64_t available = available_bytes();
            return available > before / 2 && available <= kLeft + (1 << 20) ? 0 : 2;
          }).exit_code == 0);
  }
}

}  // namespace ql
