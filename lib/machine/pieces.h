// Divides work on the CPU among threads, as far as that pays.
//
// Pieces have fixed sizes, and one thread computes each of them.
// A BLAS that divides a product among threads sums in another order for another number of them, so
// the last bits of a result would depend on that number. Inside of a piece nothing is divided. The
// sizes depend on the work alone, and so do the bits. Threads wait for each other once in all
// pieces, where operations on all threads have them wait after each, and a piece's tensors stay in
// its core's cache.
//
// A second thread has to be woken and waited for. Where it has little to compute, that costs more
// than it saves, and much more where other programs keep the cores busy: then a thread that was
// woken first waits for a core. threads_that_pay() decides about this for all work.
#pragma once

#include <cstdint>
#include <functional>

namespace ql::machine {

// Estimates how many microseconds one thread takes to multiply and add `products` pairs of numbers
// and to read or write `bytes` that lie in a cache that the cores share. It goes by the rates of
// one processor, and decides by orders of magnitude.
double microseconds_of(double products, double bytes);

// A thread pays where it has this much work. For twice as much, two threads on two cores took 0.6
// of the time of one, while the second one was spinning. They were as fast as one for 4
// microseconds of work, and for 130 when the second one was asleep.
inline constexpr double kPayingMicroseconds = 10;

// Operations of libraries pay from here on. A BLAS may have threads of its own, which sleep.
inline constexpr double kLibrariesPayingMicroseconds = 260;

// Returns how many of `threads`, from 1 on, are worth waking for work that one thread would do in
// this time.
int threads_that_pay(double microseconds, int threads);

// Calls work(begin, end) for parts of [0, count), one for each thread that pays; `microseconds` is
// the time that one thread would take for all of it. The parts depend on the number of threads, so
// use it where the bits of a result do not depend on the parts. Throws what a part throws.
void for_parts(std::int64_t count, double microseconds,
               const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// Calls work(), whose operations LibTorch and the BLAS divide among their threads. Where one thread
// would do all of it in too few microseconds for that, it does so.
void let_libraries_divide(double microseconds, const std::function<void()>& work);

// Says that every piece is long enough for a thread.
inline constexpr double kLongWork = 1e9;

// Calls work(first, count) for rows [0, rows) in pieces of `size`, the last one shorter. A thread
// takes the next piece when it is done with one. So a thread that shares its core with another
// program computes fewer pieces, and keeps nobody waiting for long. `microseconds` is the time that
// one thread would take for all rows. Gradients are made where the caller makes them. Throws what a
// piece throws.
void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work,
                double microseconds = kLongWork);

// Tells whether this thread computes a piece.
bool in_piece();

}  // namespace ql::machine
