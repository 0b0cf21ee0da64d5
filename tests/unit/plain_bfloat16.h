// Products of bfloat16 that every processor computes.
#pragma once

#include <ATen/Context.h>

namespace ql::test {

// While it lives, oneDNN takes no part: its products of bfloat16 end a process on processors that
// say they can more than they can, as virtual ones do.
class PlainBfloat16 {
 public:
  PlainBfloat16() : before_(at::globalContext().userEnabledMkldnn()) {
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~PlainBfloat16() { at::globalContext().setUserEnabledMkldnn(before_); }
  PlainBfloat16(const PlainBfloat16&) = delete;
  PlainBfloat16& operator=(const PlainBfloat16&) = delete;

 private:
  bool before_;
};

}  // namespace ql::test
