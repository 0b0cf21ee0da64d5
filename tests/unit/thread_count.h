// Runs a part of a test with another number of threads.
#pragma once

#include <ATen/Parallel.h>

#include "machine/threads.h"

namespace ql::test {

// Tensors use this many threads while it lives.
class SoManyThreads {
 public:
  explicit SoManyThreads(int threads) { machine::set_threads(threads); }
  ~SoManyThreads() { machine::set_threads(before_); }
  SoManyThreads(const SoManyThreads&) = delete;
  SoManyThreads& operator=(const SoManyThreads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace ql::test
