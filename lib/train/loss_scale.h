// Adapts the factor by which a training run in float16 multiplies its loss.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace ql::train {

constexpr const char* kLossScale = "loss_scale";  // the name of LossScale::state() in a checkpoint

// The loss is multiplied by a factor so that small gradients do not vanish in float16. When a
// gradient overflows, its step is skipped and the factor is halved, but not below 1. After many
// steps without overflow the factor is doubled, but not above kLargest. The factor is kept on the
// device, like the gradients.
class LossScale {
 public:
  static constexpr double kFirst = 65536, kLargest = 16777216;
  static constexpr std::int64_t kStepsToDouble = 2000;

  // If `adapts` is false, the factor stays 1.
  LossScale(bool adapts, const at::Device& device);

  at::Tensor factor() const { return state_.select(0, 0); }  // float32, no dimension
  // Call this after a step. `finite` (bool, no dimension) is true if the step's gradient was
  // finite.
  void update(const at::Tensor& finite);

  bool adapts() const { return adapts_; }
  // Returns float32 [2]: the factor, and a count of steps without overflow. The count becomes 0
  // after an overflow, and when it reaches kStepsToDouble.
  const at::Tensor& state() const { return state_; }

 private:
  bool adapts_;
  at::Tensor state_;
};

}  // namespace ql::train
