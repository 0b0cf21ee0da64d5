// Holds the factor that keeps small gradients from vanishing in float16. It is as large as overflow
// permits: halved when a gradient overflows, whose step is then left out, and doubled after many
// steps without overflow. It lives on the device, as the gradients do.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace ql::train {

constexpr const char* kLossScale = "loss_scale";  // its state's name in a checkpoint

class LossScale {
 public:
  static constexpr double kFirst = 65536, kLargest = 16777216;
  static constexpr std::int64_t kStepsToDouble = 2000;

  // The factor stays 1 when `adapts` is false.
  LossScale(bool adapts, const at::Device& device);

  at::Tensor factor() const { return state_.select(0, 0); }  // float32, no dimension
  // Is called after a step. `finite` (bool, no dimension) tells whether its gradient was finite.
  void update(const at::Tensor& finite);

  bool adapts() const { return adapts_; }
  // float32 [2]: the factor, and the number of steps it has had.
  const at::Tensor& state() const { return state_; }

 private:
  bool adapts_;
  at::Tensor state_;
};

}  // namespace ql::train
