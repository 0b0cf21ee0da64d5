// Has the position-wise feed-forward network, residual connections and layer norm, as operations
// with their own gradients.
#pragma once

#include <ATen/ATen.h>

#include "kernels/dropout_kernel.h"

namespace ql::kernels {

// Computes the layer norm of the networks.

// This is added to the variance. It is the default of the public code, with which the golden
// networks were computed.
constexpr double kLayerNormEpsilon = 1e-5;

// Returns the same as at::layer_norm(): `states` [..., width] less their mean over the last
// dimension, divided by their deviation, times `weight` [width] plus `bias` [width]. On the CPU,
// without gradients, one of our own kernels computes it.
at::Tensor layer_norm(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias);

// Adds residual connections with dropout and layer norm on the CPU, as one operation with its own
// gradient. lib/nn/layers.cpp computes the same by plain operations.

// Returns residual + dropout(output + bias), all [.., d_model]. An undefined bias [d_model] counts
// as 0.
at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& output,
                        const at::Tensor& bias, const DropoutMask& kept);

// Returns the same sum, and its layer norm.
struct SumAndNorm {
  at::Tensor sum, normalized;
};
SumAndNorm add_residual_and_normalize(const at::Tensor& residual, const at::Tensor& output,
                                      const at::Tensor& bias, const DropoutMask& kept,
                                      const at::Tensor& norm_weight, const at::Tensor& norm_bias);

// Runs the position-wise feed-forward network without its last bias on the CPU, as one operation
// with its own gradient. lib/nn/layers.cpp computes the same by plain operations.

// Returns dropout(relu(states W1^T + b1)) W2^T for `states` [.., d_model], W1 [d_inner, d_model],
// b1 [d_inner] and W2 [d_model, d_inner]. `kept` is the mask of [.., d_inner]. The sum of the
// residual connection adds the last bias.
at::Tensor feed_forward(const at::Tensor& states, const at::Tensor& inner_weight,
                        const at::Tensor& inner_bias, const at::Tensor& outer_weight,
                        const DropoutMask& kept);

}  // namespace ql::kernels
