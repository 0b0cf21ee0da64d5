// Divides work on the CPU into pieces of fixed sizes, each of which one thread computes.
//
// A BLAS that divides a product among threads sums in another order for another number of them, so
// the last bits of a result would depend on that number. Inside of a piece nothing is divided. The
// sizes depend on the work alone, and so do the bits. Threads wait for each other once in all
// pieces, where operations on all threads have them wait after each, and a piece's tensors stay in
// its core's cache.
#pragma once

#include <cstdint>
#include <functional>

namespace ql::machine {

// Calls work(first, count) for rows [0, rows) in pieces of `size`, the last one shorter. A thread
// takes the next piece when it is done with one. So a thread that shares its core with another
// program computes fewer pieces, and keeps nobody waiting for long. Gradients are made where the
// caller makes them. Throws what a piece throws.
void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work);

// Tells whether this thread computes a piece.
bool in_piece();

}  // namespace ql::machine
