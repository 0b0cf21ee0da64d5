// What this process may use of its machine, and how much memory it has.
#pragma once

#include <cstdint>

namespace ql {

// Physical cores: distinct cores of the process's CPU affinity, at most the control group's quota.
// At least 1.
int usable_cores();

// Bytes of this process that are in memory now; 0: unknown.
std::int64_t resident_bytes();

// The most that it had at once.
std::int64_t peak_resident_bytes();

// Bytes that the system could still give without swapping, or the control group, if that is less;
// 0: unknown.
std::int64_t available_bytes();

}  // namespace ql
