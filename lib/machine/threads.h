// Sets up the threads of tensors and of BLAS, and divides work on the CPU among threads as far as
// that saves time.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <string>

#include "machine/device.h"

namespace ql::machine {

// library_symbol() gives access to functions that a library may or may not have.

// Returns the function of this name in the loaded libraries; nullptr if none has it.
template <typename Function>
Function* library_symbol(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// Returns OpenBLAS's name for the kernels of a processor whose widest vectors are `widest`. Returns
// "" if `taken`, the kernels that OpenBLAS chose, are not among its fallbacks for unknown
// processors. OpenBLAS chooses kernels by the processor's name when it is loaded. For a processor
// that is newer than OpenBLAS it chooses the kernels of a processor of 2004, which reach a
// twentieth of the speed of wide vectors.
std::string better_openblas_kernels(const std::string& taken, VectorVersion widest);

// These functions set the number of threads for tensors, and check that the machine's BLAS is fast.
//
// LibTorch as Debian builds it starts with one thread, and uses the library that libblas.so.3
// points to: the reference BLAS is about thirty times slower than OpenBLAS.

class ProcessGroup;

// Makes the process keep the memory of tensors that are freed in every step, because fresh pages
// from the system would take a tenth of a step's time.
void keep_freed_memory();

struct ThreadSetup {
  int threads = 1;
  std::string blas;   // "OpenBLAS 0.3.21 Haswell" (its kernels), "MKL", or the library's file
  double gflops = 0;  // measured on a product of two 512 x 512 matrices in float32
};

// Sets the number of threads of LibTorch and of its BLAS. 0 stands for usable_cores() of
// base/resources.h, divided by the number of processes on this machine; `group`, or without a group
// base/launched_process.h, has this number. Also makes OpenBLAS use kernels that suit the
// processor, calls keep_freed_memory(), and measures the speed of the BLAS for some milliseconds.
// Logs a warning with the remedy if the BLAS is slow or has a second pool of threads. Call this
// function before the first tensor operation. Throws UsageError above 1024 threads.
ThreadSetup set_up_threads(int threads, const ProcessGroup* group = nullptr);

// Sets the number of threads of LibTorch and of its BLAS, and nothing else.
void set_threads(int threads);

// Holds the rows [first, first + count) of a batch, which go through a network together.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

// The following functions divide work on the CPU among threads, as far as this saves time.
//
// Pieces have fixed sizes, and one thread computes each piece. A BLAS that divides a matrix product
// among threads sums in another order for another number of threads, so the last bits of a result
// would depend on this number. Inside a piece nothing is divided. The sizes of pieces depend on the
// work alone, so the bits of a result depend on the work alone, too. Threads wait for each other
// once, after all pieces; if all threads shared each operation, they would wait after each
// operation. The tensors of a piece stay in the cache of one core.
//
// A second thread has to be woken and waited for. If this thread has little to compute, the waiting
// takes more time than the thread saves. It takes much more while other programs keep the cores
// busy, because a woken thread then waits for a core. threads_that_pay() decides for all work how
// many threads to use.

// Estimates how many microseconds one thread takes to multiply and add `products` pairs of numbers,
// or to read or write `bytes` in a cache that the cores share, whichever takes longer. The rates
// are those of one processor, because callers decide by orders of magnitude.
double microseconds_of(double products, double bytes);

// A further thread saves time if it has this much work. In a measurement with twice this work, two
// threads on two cores took 0.6 of the time of one thread, while the second thread was spinning.
// Two threads were as fast as one for 4 microseconds of work with a spinning second thread, and for
// 130 microseconds with a sleeping one.
inline constexpr double kPayingMicroseconds = 10;

// Returns how many of `threads`, at least 1, save time for work that takes one thread
// `microseconds`.
int threads_that_pay(double microseconds, int threads);

// Calls work(begin, end) for parts of [0, count), one part for each of threads_that_pay();
// `microseconds` is the time that one thread would take for all parts. The parts depend on the
// number of threads, so use this function only if the bits of a result do not depend on the parts.
// Gradients are recorded if the caller records them. Rethrows the exception of a part.
void for_parts(std::int64_t count, double microseconds,
               const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// Stands for the time of work whose pieces are all long enough for a thread.
inline constexpr double kLongWork = 1e9;

// Calls work(first, count) for rows [0, rows) in pieces of `size` rows; the last piece may be
// shorter. A thread takes the next piece when it has finished one. So a thread that shares its core
// with another program computes fewer pieces, and the other threads do not wait long for this
// thread. `microseconds` is the time that one thread would take for all rows. Gradients are
// recorded if the caller records them. Rethrows the exception of a piece.
void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work,
                double microseconds = kLongWork);

// Returns true if this thread is computing a piece or a part.
bool in_piece();

}  // namespace ql::machine
