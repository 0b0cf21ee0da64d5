// Computes the cross entropy of kernels/softmax.h over clusters.
#pragma once

#include <ATen/ATen.h>

#include "kernels/softmax.h"

namespace ql::kernels {

struct SoftmaxGradients {
  at::Tensor states;
  SoftmaxWeights weights;
};

// Returns the losses [rows], on the CPU and outside of autograd. With contiguous `factors` [rows]
// it also makes the gradients of sum(factors * losses) for the tensors that require one. The others
// stay undefined, as do those of the weights, biases and projections of a cluster without rows,
// unless all clusters share them.
at::Tensor clustered_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                            const at::Tensor& targets, const at::Tensor& factors,
                            SoftmaxGradients& gradients);

// Returns the losses [rows] on any device, by operations that autograd knows.
at::Tensor composed_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                           const at::Tensor& targets);

}  // namespace ql::kernels
