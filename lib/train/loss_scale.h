// The factor that keeps small gradients from vanishing in float16: as large as overflow lets it be.
// Halved when a gradient overflows, whose step is then left out, and doubled after many steps
// without. It lives on the device, as the gradients do.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace ql::train {

class LossScale {
 public:
  static constexpr double kFirst = 65536, kLargest = 16777216;
  static constexpr std::int64_t kStepsToDouble = 2000;

  // With `adapts` false it stays 1.
  LossScale(bool adapts, const at::Device& device);

  at::Tensor factor() const { return state_.select(0, 0); }  // float32, no dimension
  // After a step; `finite` (bool, no dimension): its gradient was finite.
  void update(const at::Tensor& finite);

  bool adapts() const { return adapts_; }
  // float32 [2]: the factor, and how many steps it has had.
  const at::Tensor& state() const { return state_; }

 private:
  bool adapts_;
  at::Tensor state_;
};

}  // namespace ql::train
