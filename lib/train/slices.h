// Splits the rows of a batch for a step on the CPU. A slice goes through forward and backward pass
// on one thread: matrix products of some hundred rows are as fast that way as on all threads
// together, and everything between them is faster. A slice that would need too much memory goes in
// several passes.
//
// The sums of a step depend on the slices and passes, and not on the number of threads, except for
// a slice that is alone: its products run on all threads.
#pragma once

#include <cstdint>
#include <vector>

#include "machine/row_range.h"

namespace ql::train {

using machine::RowRange;

// A slice is its passes, in order.
using Slice = std::vector<RowRange>;

// Splits `batch` rows into `slices` parts of nearly equal size, and each of these into `passes`
// parts. There is at most one part for every row.
std::vector<Slice> split_rows(std::int64_t batch, std::int64_t slices, std::int64_t passes);

// Returns the slices for a training on so many threads: one for each thread, at least two, and each
// of at least 64 tokens. So one and two threads compute the same wherever there are two slices.
std::int64_t choose_slices(std::int64_t batch, std::int64_t segment, int threads);

}  // namespace ql::train
