// Finds the limits that control groups (containers, systemd units, jobs of Slurm) set to this
// process, in both versions of Linux's control groups.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ql {

struct ControlGroupLimits {
  std::optional<double> cores;                // processors' worth of time
  std::optional<std::int64_t> unused_memory;  // bytes without swap; negative: too many are taken
};

// Returns the least that this process's groups and all groups above them leave to it, as far as
// they are mounted; nothing where there is no limit, or where it cannot be read or understood.
// Every group above counts the use of all groups in it, so the one with the least limit may not be
// the one that leaves least. The cache of files does not count as used, because a group gives it up
// when it must. `root` is the folder that has proc/ and the mount points.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

}  // namespace ql
