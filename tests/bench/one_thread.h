// Keeps a measurement to one thread.
#pragma once

#include <ATen/Parallel.h>

#include "machine/threads.h"

namespace ql::bench {

// Measurements run in one thread while this lives. The time that the thread took says more than the
// clock on a machine that others use.
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
