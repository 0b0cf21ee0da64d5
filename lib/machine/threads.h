// Sets up the threads of tensors and of BLAS, and divides work on the CPU among threads as far as
// that saves time.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <string>

#include "machine/device.h"

namespace ql::machine {

// Access to functions that a library may or may not have.

// Returns the function of this name in the loaded libraries; nullptr if none has it.
template <typename Function>
Function* library_symbol(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// Returns OpenBLAS's name for the kernels of a processor with these vectors; empty if `taken`, the
// kernels that OpenBLAS chose, are not among its fallbacks for unknown processors. OpenBLAS chooses
// them by the processor's name when it is loaded. For a name that is newer than OpenBLAS it takes
// those of a processor of 2004, which reach a twentieth of the speed of wide vectors.
std::string better_openblas_kernels(const std::string& taken, VectorVersion widest);

// Sets the number of threads for tensors, and checks that the machine's BLAS is a fast one.
//
// LibTorch as Debian builds it starts with one thread, and uses the library that libblas.so.3
// points to: the reference BLAS is about thirty times slower than OpenBLAS.

class ProcessGroup;

// Keeps the memory of tensors that are freed in every step in the process: fresh pages from the
// system would cost a tenth of the time.
void keep_freed_memory();

struct ThreadSetup {
  int threads = 1;
  std::string blas;   // "OpenBLAS 0.3.21 Haswell" (its kernels), "MKL", or the library's file
  double gflops = 0;  // measured on a product of two 512 x 512 matrices in float32
};

// Sets the threads of LibTorch and of the BLAS beneath it. 0 stands for usable_cores() of
// base/resources.h, shared among the processes on this machine: those of the group, or without a
// group those of base/launched_process.h. Also makes OpenBLAS take kernels that suit the processor,
// keeps freed memory, measures for some milliseconds, and logs a warning with the remedy if the
// BLAS is slow or has a second pool of threads. Call it before the first tensor operation. Throws
// UsageError above 1024 threads.
ThreadSetup set_up_threads(int threads, const ProcessGroup* group = nullptr);

// Sets the threads of LibTorch and of the BLAS beneath it, and nothing else.
void set_threads(int threads);

// Rows [first, first + count) of a batch, which go through a network together.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

// Divides work on the CPU among threads, as far as that pays.
//
// Pieces have fixed sizes, and one thread computes each of them. A BLAS that divides a product
// among threads sums in another order for another number of threads, so the last bits of a result
// would depend on that number. Inside of a piece nothing is divided. The sizes depend on the work
// alone, and so do the bits. Threads wait for each other once in all pieces, where operations on
// all threads would make them wait after each operation, and a piece's tensors stay in its core's
// cache.
//
// A second thread has to be woken and waited for. If it has little to compute, that costs more than
// it saves, and much more while other programs keep the cores busy: then a woken thread first waits
// for a core. threads_that_pay() decides about this for all work.

// Estimates how many microseconds one thread takes to multiply and add `products` pairs of numbers
// and to read or write `bytes` that are in a cache that the cores share. It uses the rates of one
// processor; callers decide by orders of magnitude.
double microseconds_of(double products, double bytes);

// A thread pays if it has this much work. Measured: with twice as much work, two threads on two
// cores took 0.6 of the time of one while the second one was spinning. They were as fast as one
// thread for 4 microseconds of work, and for 130 when the second one was asleep.
inline constexpr double kPayingMicroseconds = 10;

// Returns how many of `threads`, at least 1, are worth waking for work that takes one thread this
// time.
int threads_that_pay(double microseconds, int threads);

// Calls work(begin, end) for parts of [0, count), one for each thread that pays; `microseconds` is
// the time that one thread would take for all of it. The parts depend on the number of threads, so
// use it only if the bits of a result do not depend on the parts. Gradients are recorded if the
// caller records them. Rethrows the exception of a part.
void for_parts(std::int64_t count, double microseconds,
               const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// Stands for the time of work whose pieces are all long enough for a thread.
inline constexpr double kLongWork = 1e9;

// Calls work(first, count) for rows [0, rows) in pieces of `size`, the last one shorter. A thread
// takes the next piece when it has finished one. So a thread that shares its core with another
// program computes fewer pieces, and nobody waits for it for long. `microseconds` is the time that
// one thread would take for all rows. Gradients are recorded if the caller records them. Rethrows
// the exception of a piece.
void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work,
                double microseconds = kLongWork);

// Returns true if this thread computes a piece or a part.
bool in_piece();

}  // namespace ql::machine
