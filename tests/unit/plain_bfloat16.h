// Products of bfloat16 that every processor computes.
#pragma once

#include <ATen/Context.h>

namespace ql::test {

// While it lives, oneDNN is not used: its products of bfloat16 end a process on processors, such as
// virtual ones, that report instructions they do not have.
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
