// Cross entropy and its gradients by blocks of rows, on the CPU; outside of autograd.
#pragma once

#include <ATen/ATen.h>

namespace ql::nn {

// Contiguous tensors of one dtype, float32 or float64; shapes as for cross_entropy().
struct SoftmaxInput {
  at::Tensor states, weight, bias, targets;
};

// Of sum(factors * losses), shaped like the input.
struct SoftmaxGradients {
  at::Tensor states, weight, bias;
};

// The losses [rows], and unless `gradients` is null the gradients for `factors` [rows] (undefined:
// all 1).
at::Tensor softmax_blocks(const SoftmaxInput& input, const at::Tensor& factors,
                          SoftmaxGradients* gradients);

}  // namespace ql::nn
