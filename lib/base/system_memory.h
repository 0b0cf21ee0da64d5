// Finds how much memory this process has and could have.
#pragma once

#include <cstdint>

namespace ql {

// Bytes of this process that are in memory now; 0: unknown.
std::int64_t resident_bytes();

// The most that it had at once.
std::int64_t peak_resident_bytes();

// Bytes that the system could still give without swapping, or the control group, if that is less;
// 0: unknown.
std::int64_t available_bytes();

}  // namespace ql
