// Adam (Kingma and Ba, 2015) with bias correction and clipping of the whole gradient's norm
// (train/gradients.h), in one pass over weights, gradient and moments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.h"
#include "train/config.h"

namespace ql::train {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Decoupled (Loshchilov and Hutter, 2019): a step takes learning_rate * weight_decay of a weight
  // away from it, besides what the gradient says.
  double weight_decay = 0;
  DecayOn decay_on = DecayOn::kMatrices;
};

// True when weight decay acts on the parameter of this name (nn/parameters.h). It acts on matrices;
// biases, norms and embeddings, the learned ones of distances among them, it leaves alone
// unless it acts on all.
bool decays(const std::string& name, DecayOn on);

AdamOptions adam_options(const TrainingConfig& config);

class Adam {
 public:
  // `parameters` are shared with the model and must be contiguous, on the CPU, float32 or float64
  // (std::invalid_argument). Moments start as zeros.
  Adam(std::vector<nn::NamedTensor> parameters, const AdamOptions& options);

  // One update with the parameters' grad() times `gradient_scale`, then drops the gradients. A
  // parameter without one counts as zeros.
  void step(double learning_rate, double gradient_scale);

  std::int64_t steps() const { return steps_; }

  // "first_moment.NAME" of every parameter in their order, then "second_moment.NAME" of every
  // parameter. They share memory with this object.
  std::vector<nn::NamedTensor> moments() const;
  // A resume calls this after it copied the moments into the tensors of moments().
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  std::vector<nn::NamedTensor> parameters_;
  std::vector<at::Tensor> first_, second_;
  AdamOptions options_;
  std::int64_t steps_ = 0;
};

// Returns the factor that brings a gradient of norm `norm` down to `clip`; 1 when it is short
// enough or clip is 0.
double clip_scale(double norm, double clip);

}  // namespace ql::train
