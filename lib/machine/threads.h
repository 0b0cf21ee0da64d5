// Sets up the threads of LibTorch and of BLAS, and divides work on the CPU among threads where this
// saves time.
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

// Returns OpenBLAS's name for the kernels of a processor whose widest vectors are `widest`. `taken`
// names the kernels that OpenBLAS chose. Returns "" if `taken` is not one of OpenBLAS's fallbacks
// for unknown processors, and for kPortable. OpenBLAS chooses kernels by the processor's name when
// it is loaded. For a processor that is newer than OpenBLAS it chooses a fallback, such as the
// kernels of Prescott (2004). These reach a twentieth of the speed of kernels with wide vectors.
std::string better_openblas_kernels(const std::string& taken, VectorVersion widest);

// These functions set the number of threads for tensors, and check that the machine's BLAS is fast.
//
// LibTorch as Debian builds it starts with one thread, and uses the library that libblas.so.3
// points to. This may be the reference BLAS, which is about thirty times slower than OpenBLAS.

class ProcessGroup;

struct ThreadSetup {
  int threads = 1;
  std::string blas;  // "OpenBLAS 0.3.21 Haswell" (its kernels), "MKL", or the library's file
  // Names the kernels that OpenBLAS has for this processor, if OPENBLAS_CORETYPE made it take
  // others; else "".
  std::string own_kernels;
  double gflops = 0;  // measured on a product of two 512 x 512 matrices in float32
};

// Sets the number of threads of LibTorch and of its BLAS. 0 stands for usable_cores()
// (base/resources.h) divided by the number of processes on this machine. The number of processes
// comes from `group`, or for a group of one from base/launched_process.h. Also makes OpenBLAS use
// kernels that suit the processor, calls keep_freed_memory(), and measures the speed of the BLAS
// for some milliseconds. Logs a warning with the remedy if the BLAS is slow or has a second pool of
// threads. Call this function before the first tensor operation. Throws UsageError above 1024
// threads.
ThreadSetup set_up_threads(int threads);
ThreadSetup set_up_threads(int threads, const ProcessGroup& group);

// Sets the number of threads of LibTorch and of its BLAS, and nothing else.
void set_threads(int threads);

// The following functions divide work on the CPU among threads, as far as this saves time.
//
// Pieces have fixed sizes, and each piece is computed by a single thread. A BLAS that divides a
// matrix product among threads sums in another order for another number of threads, so the last
// bits of a result would depend on this number. Inside a piece nothing is divided. The sizes of
// pieces depend on the work alone, so the bits of a result depend on the work alone, too. Threads
// wait for each other once, after all pieces; if all threads shared each operation, they would wait
// after each operation. The tensors of a piece stay in the cache of one core.
//
// A second thread has to be woken and waited for. If it has little to compute, this takes more time
// than the thread saves. The wait is much longer while other programs keep the cores busy, because
// a woken thread then waits for a core. So for_parts() and for_pieces() use at most
// threads_that_pay() threads.

// Estimates how many microseconds one thread takes to multiply and add `products` pairs of numbers,
// and how many to read or write `bytes` in a cache that the cores share. Returns the larger
// estimate. The rates are those of one kind of processor: callers need only the order of magnitude.
double microseconds_of(double products, double bytes);

// A further thread saves time if it has this much work. In a measurement with twice this work, two
// threads on two cores took 0.6 of the time of one thread if the second thread was spinning. Two
// threads broke even with one at 4 microseconds of work if the second thread was spinning, and at
// 130 microseconds if it was sleeping.
inline constexpr double kPayingMicroseconds = 10;

// Returns how many threads, from 1 to `threads`, save time. `microseconds` is the time that one
// thread would take for all the work.
int threads_that_pay(double microseconds, int threads);

// Divides [0, count) into at most threads_that_pay() parts, and calls work(begin, end) once for
// each part. Each part is computed by one thread. `microseconds` is the time that one thread would
// take for all parts. The parts depend on the number of threads, so use this function only if the
// bits of a result do not depend on the parts. Gradients are recorded if the caller records them.
// Rethrows the exception of a part.
void for_parts(std::int64_t count, double microseconds,
               const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// With this value of `microseconds`, for_pieces() uses all threads if it has enough pieces.
inline constexpr double kLongWork = 1e9;

// Calls work(first, count) for rows [0, rows) in pieces of `size` rows; the last piece may be
// shorter. A thread takes the next piece when it has finished one. So a thread that shares its core
// with another program computes fewer pieces, and the other threads do not wait long for this
// thread. `microseconds` is the time that one thread would take for all rows. Gradients are
// recorded if the caller records them. Rethrows the exception of a piece.
void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work,
                double microseconds = kLongWork);

// Returns true if this thread is running a work() of for_pieces() or for_parts().
bool in_piece();

}  // namespace ql::machine
