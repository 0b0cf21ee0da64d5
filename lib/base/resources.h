// Finds the resources that this process may use: processors, memory, and the limits of control
// groups.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ql {

// These find the limits that control groups (containers, systemd units, jobs of Slurm) set for this
// process, in both versions of Linux's control groups.

struct ControlGroupLimits {
  std::optional<double> cores;                // processors' worth of time
  std::optional<std::int64_t> unused_memory;  // bytes without swap; negative above the limit
};

// Returns the smallest amounts that this process's groups and all groups above them leave, as far
// as they are mounted, and nothing where no limit exists or can be read. Each group also counts the
// use of all groups below it, so the group with the lowest limit may not be the one that leaves
// least. The cache of files does not count as used, because a group gives it up when necessary.
// `root` is the folder that has proc/ and the mount points.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

// Returns the number of physical cores that the process may use: those of its CPU affinity, at most
// the control groups' quota, at least 1.
int usable_cores();

// Returns the bytes of this process that are in memory now, or 0 if that is unknown.
std::int64_t resident_bytes();

// Returns the largest value that resident_bytes() has had, or 0 if that is unknown.
std::int64_t peak_resident_bytes();

// Returns the bytes that the system could still give without swapping, or that the control groups
// leave if that is less, or 0 if that is unknown.
std::int64_t available_bytes();

}  // namespace ql
