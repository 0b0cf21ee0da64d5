// Sets how many threads the tensors use, and finds out whether the machine's BLAS is a fast one.
//
// LibTorch as Debian builds it starts with one thread, and runs on whatever libblas.so.3 points to:
// the reference BLAS is about thirty times slower than OpenBLAS.
#pragma once

#include <string>

namespace ql::machine {

class ProcessGroup;

// Lets the memory of tensors that come and go every step stay with the process: fresh pages of the
// system would cost a tenth of the time.
void keep_freed_memory();

struct ThreadSetup {
  int threads = 1;
  std::string blas;   // "OpenBLAS 0.3.21 Haswell" (its kernels), "MKL", or the library's file
  double gflops = 0;  // measured on a product of two 512 x 512 matrices in float32
};

// Sets the threads of LibTorch and of the BLAS beneath it (0: usable_cores() of base/resources.h,
// shared among the processes on this machine: those of the group, or without one those of
// base/launched_process.h), lets OpenBLAS take
// kernels that suit the processor (machine/openblas_kernels_internal.h), keeps freed memory,
// measures for some milliseconds, and logs a warning with the cure when the BLAS is slow or keeps a
// second pool of threads. Call it before the first tensor operation. Throws UsageError above 1024
// threads.
ThreadSetup set_up_threads(int threads, const ProcessGroup* group = nullptr);

// Sets the threads of LibTorch and of the BLAS beneath it, and nothing else.
void set_threads(int threads);

// While it lives, matrix products that several threads begin at the same time have one thread each:
// OpenBLAS with POSIX threads of its own would else let them all wait for these. Other BLAS
// libraries see to it themselves.
class OneThreadProducts {
 public:
  OneThreadProducts();
  ~OneThreadProducts();
  OneThreadProducts(const OneThreadProducts&) = delete;
  OneThreadProducts& operator=(const OneThreadProducts&) = delete;

 private:
  int before_ = 0;  // threads of the BLAS; 0: not touched
};

}  // namespace ql::machine
