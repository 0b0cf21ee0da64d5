// The cross entropy of kernels/softmax.h over clusters, outside of autograd.
#pragma once

#include <ATen/ATen.h>

#include "kernels/softmax.h"

namespace ql::kernels {

struct SoftmaxGradients {
  at::Tensor states;
  SoftmaxWeights weights;
};

// On the CPU: the losses [rows]. With contiguous `factors` [rows] also the gradients of
// sum(factors * losses) for the tensors that require one; the others stay undefined, as do those
// of the weights, biases and projections of a cluster without rows, unless all clusters share them.
at::Tensor clustered_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                            const at::Tensor& targets, const at::Tensor& factors,
                            SoftmaxGradients& gradients);

// On any device, by operations that autograd knows: the losses [rows].
at::Tensor composed_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                           const at::Tensor& targets);

}  // namespace ql::kernels
