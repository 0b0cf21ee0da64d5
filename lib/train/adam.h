// Updates the weights with Adam, including weight decay.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/parameters.h"
#include "train/config.h"
#include "train/gradients.h"

namespace ql::train {

// Returns true if weight decay acts on the parameter of this name (nn/parameters.h). With kMatrices
// it does not act on biases, on weights of layer norms, or on learned embeddings of tokens and
// distances.
bool decays(const std::string& name, DecayOn on);

// This is Adam (Kingma and Ba, 2015) with bias correction. Our own kernel runs an update on the
// CPU, in one pass over weights, gradient and moments; on other devices ATen's operations run it.
// These do not wait for the device, so the host does not know which updates were skipped. Therefore
// the device counts the updates.
class Adam {
 public:
  // `parameters` share memory with the model. Moments start as zeros. Our own kernel needs float32
  // or float64 on the CPU.
  Adam(nn::FlatTensors parameters, const AdamOptions& options, bool by_kernel);

  // Runs one update with the gradient of all parameters times `gradient_scale`. The update may
  // overwrite the gradient. If `applies` is false, weights, moments and the number of
  // updates keep their values. All arguments except `gradient` have no dimension and are on the
  // device of the parameters: `applies` is a bool, the others are of any floating-point type.
  void step(const Gradient& gradient, const at::Tensor& gradient_scale,
            const at::Tensor& learning_rate, const at::Tensor& applies);

  // Returns the number of updates that were not skipped. Waits for the device.
  std::int64_t updates() const;

  // Returns "first_moment.NAME" of every parameter, in the order of the parameters, then
  // "second_moment.NAME" of every parameter. These tensors share memory with this object.
  const std::vector<nn::NamedTensor>& moments() const { return moments_; }
  // A resume calls this after it has copied the moments into the tensors of moments().
  void set_updates(std::int64_t updates);

 private:
  void step_by_kernel(const Gradient& gradient, double gradient_scale, double learning_rate);
  void step_by_operations(const at::Tensor& gradient, const at::Tensor& gradient_scale,
                          const at::Tensor& learning_rate, const at::Tensor& applies);

  nn::FlatTensors parameters_;
  AdamOptions options_;
  bool by_kernel_;
  at::Tensor first_, second_;  // [elements]
  std::vector<nn::NamedTensor> moments_;
  std::vector<Block> blocks_;
  at::Tensor decayed_;  // [elements]: 1 if weight decay acts, else 0; undefined without decay
  at::Tensor updates_;  // float64, no dimension
};

}  // namespace ql::train
