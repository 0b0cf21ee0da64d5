// Runs a part of a test with another number of threads.
#pragma once

#include <ATen/Parallel.h>

#include "machine/threads.h"

namespace ql::test {

// While it lives, tensors use this number of threads.
class WithThreads {
 public:
  explicit WithThreads(int threads) { machine::set_threads(threads); }
  ~WithThreads() { machine::set_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace ql::test
