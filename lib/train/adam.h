// Updates weights with Adam, including weight decay and gradient clipping. Adapts the factor by
// which a training run in float16 multiplies its loss.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/parameters.h"
#include "train/config.h"

namespace ql::train {

// All weights are processed in blocks of this number of elements. The blocks, and so the order of
// sums, do not depend on the number of threads.
inline constexpr std::int64_t kBlock = 16384;

inline std::int64_t block_count(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }

// The class below is Adam (Kingma and Ba, 2015) with bias correction. Clipping and update take one
// pass over weights, gradient and moments. The norm of the complete gradient, for clip_scale(),
// comes from train/gradients.h.

// Returns true if weight decay acts on the parameter of this name (nn/parameters.h). With kMatrices
// it does not act on biases, on weights of layer norms, or on learned embeddings of tokens and
// distances.
bool decays(const std::string& name, DecayOn on);

class Adam {
 public:
  // `parameters` are shared with the model. Throws std::invalid_argument unless they are contiguous
  // floating-point tensors on the CPU; step() supports only float32 and float64. Moments start as
  // zeros.
  Adam(std::vector<nn::NamedTensor> parameters, const AdamOptions& options);

  // Runs one update with the parameters' grad() times `gradient_scale`, then drops the gradients. A
  // missing gradient counts as zeros.
  void step(double learning_rate, double gradient_scale);

  std::int64_t steps() const { return steps_; }

  // Returns "first_moment.NAME" of every parameter, in the order of the parameters, then
  // "second_moment.NAME" of every parameter. These tensors share memory with this object.
  const std::vector<nn::NamedTensor>& moments() const { return moments_; }
  // A resume calls this after it has copied the moments into the tensors of moments().
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  std::vector<nn::NamedTensor> parameters_, moments_;
  AdamOptions options_;
  std::int64_t steps_ = 0;
};

// Returns the factor that reduces a gradient of norm `norm` to norm `clip`. Returns 1 if the norm
// is not above `clip`, or if `clip` is 0 (no clipping).
double clip_scale(double norm, double clip);

// The loss is multiplied by a factor so that small gradients do not vanish in float16. When a
// gradient overflows, its step is skipped and the factor is halved, but not below 1. After many
// steps without overflow the factor is doubled, but not above kLargest. The factor is kept on the
// device, like the gradients.

constexpr const char* kLossScale = "loss_scale";  // the name of LossScale::state() in a checkpoint

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
