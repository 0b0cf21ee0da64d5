// A part of a batch's rows.
#pragma once

#include <cstdint>

namespace ql::machine {

// Rows [first, first + count), which go through a network together.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

}  // namespace ql::machine
