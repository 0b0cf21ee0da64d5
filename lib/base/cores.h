// Finds how many threads a tool should use.
#pragma once

namespace ql {

// Physical cores this process may use: distinct cores of its CPU affinity, at most the control
// group's quota. At least 1.
int usable_cores();

}  // namespace ql
