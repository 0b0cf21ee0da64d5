// Keeps a measurement to one thread.
#pragma once

#include <ATen/Parallel.h>

#include "machine/tensor_memory.h"

namespace ql::bench {

// Measurements run in one thread while this lives. On a machine that others use, the thread's
// processor time is more reliable than the clock.
struct OneThread {
  OneThread() {
    machine::keep_freed_memory();
    at::set_num_threads(1);
  }
  ~OneThread() { at::set_num_threads(before); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  int before = at::get_num_threads();
};

}  // namespace ql::bench
