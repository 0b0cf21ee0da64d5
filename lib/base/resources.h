// Finds the resources that this process may use: processors, memory, and the limits of control
// groups.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ql {

// ControlGroupLimits has the limits that control groups (containers, systemd units, jobs of Slurm)
// set for this process, in both versions of Linux's control groups.

struct ControlGroupLimits {
  std::optional<double> cores;                // quota of processor time in processors, such as 1.5
  std::optional<std::int64_t> unused_memory;  // bytes without swap; negative if over the limit
};

// Returns the processor time and the memory that control groups leave to this process. Each value
// is the smallest among the process's groups and all groups above them. Groups that are not mounted
// are left out. A value is absent where no limit is found. A group's use includes the use of all
// groups below it, so the group with the lowest limit may not leave least. Cached files do not
// count as used, because a group can give up its cache. `root` has proc/ and the mount points.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

// Returns the number of physical cores that the process may use: those of its CPU affinity, at most
// the control groups' quota (rounded up), and at least 1.
int usable_cores();

// Returns the bytes of this process that are in memory now, or 0 if that is unknown.
std::int64_t resident_bytes();

// Returns the largest value that resident_bytes() has had, or 0 if that is unknown.
std::int64_t peak_resident_bytes();

// Returns false if the system has no room for these bytes: it would grant them, and kill a process
// when they are used. Counts swap space, of which a control group may have less, and no limit of
// this process (ulimit), which the system keeps by itself. Returns true if the room is unknown.
bool system_has(std::int64_t bytes);

// Returns the number of bytes that the system could still give without swapping, or the number that
// the control groups or the limits of this process (ulimit -v and -d) leave if it is smaller.
// Returns 0 if all are unknown.
std::int64_t available_bytes();

}  // namespace ql
