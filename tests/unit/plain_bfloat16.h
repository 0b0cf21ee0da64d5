// Makes ATen compute products of bfloat16 in a way that works on every processor.
#pragma once

#include <ATen/Context.h>

namespace ql::test {

// oneDNN is not used while an object lives, because its products of bfloat16 end a process on
// processors that report instructions they do not have, such as virtual ones.
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
