// Runs Adam (train/adam.h) by ATen's operations, on any device. All parameters lie in one tensor,
// so that an update takes few operations, and nothing waits for a number to come back from the
// device. That is why the number of updates is counted there: the host learns too late which
// updates applied.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "nn/named_tensor.h"
#include "train/adam.h"

namespace ql::train {

class DeviceAdam {
 public:
  // `parameters` are shared with the model, all of one floating-point type and on one device
  // (std::invalid_argument). Their values move into one tensor, and everything that holds a
  // parameter sees the new place. Moments start as zeros.
  DeviceAdam(const std::vector<nn::NamedTensor>& parameters, const AdamOptions& options);

  // Returns the gradients of all parameters, one after another, with zeros as padding and for
  // parameters without a gradient. Then drops the gradients.
  at::Tensor take_gradient();

  // Runs one update with `gradient`, which take_gradient() returned, times `gradient_scale`. When
  // `applies` is false, weights, moments and the number of updates keep their values. All tensors
  // but the gradient have no dimension and are on the device: `applies` is a bool, the others are
  // of any floating-point type.
  void step(const at::Tensor& gradient, const at::Tensor& gradient_scale,
            const at::Tensor& learning_rate, const at::Tensor& applies);

  // The number of updates that applied. Waits for the device.
  std::int64_t steps() const;
  // These do the same as Adam::moments() and Adam::set_steps().
  std::vector<nn::NamedTensor> moments() const;
  void set_steps(std::int64_t steps);

 private:
  // The place of a parameter in the tensor of all.
  struct Part {
    nn::NamedTensor parameter;
    std::int64_t begin = 0, size = 0, padding = 0;  // in numbers; the padding follows
  };
  at::Tensor part_of(const at::Tensor& all, const Part& part) const;

  AdamOptions options_;
  std::vector<Part> parts_;
  at::Tensor weights_, first_, second_;  // [numbers]
  at::Tensor decayed_;  // [numbers]: 1 where weight decay acts, else 0; undefined without decay
  at::Tensor steps_;    // float64, no dimension
  at::Tensor zeros_;    // as many as the longest padding or gradient needs
};

}  // namespace ql::train
