// Tells what this process may use of its machine, and how much memory it has.
#pragma once

#include <cstdint>

namespace ql {

// Returns the number of physical cores: those of the process's CPU affinity, at most the control
// groups' quota, at least 1.
int usable_cores();

// Returns the bytes of this process that are in memory now; 0: unknown.
std::int64_t resident_bytes();

// Returns the most that it had at once.
std::int64_t peak_resident_bytes();

// Returns the bytes that the system could still give without swapping, or the control groups, if
// that is less; 0: unknown.
std::int64_t available_bytes();

}  // namespace ql
