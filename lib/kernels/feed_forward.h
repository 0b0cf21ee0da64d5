// Has layer norm, residual connections and the position-wise feed-forward network.
#pragma once

#include <ATen/ATen.h>

#include "kernels/dropout_kernel.h"

namespace ql::kernels {

// Layer norm adds this to the variance. The value is PyTorch's default, which the public
// Transformer-XL code uses. The golden networks (tests/golden) use it, too.
constexpr double kLayerNormEpsilon = 1e-5;

// Returns the same as at::layer_norm(): (states - mean) / deviation * weight + bias, for `states`
// [..., width], `weight` [width] and `bias` [width], with the mean and the standard deviation of
// the last dimension. On the CPU, if gradients are not recorded, one of our own kernels computes
// the result.
at::Tensor layer_norm(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias);

// On the CPU, the next two functions add a residual connection with dropout. The second one also
// applies layer norm to the sum. Each is one operation with its own gradient. lib/nn/layers.cpp
// computes the same by plain operations.

// Returns residual + dropout(output + bias). All are [.., d_model], except for `bias` [d_model]. An
// undefined bias counts as 0.
at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& output,
                        const at::Tensor& bias, const DropoutMask& kept);

// Holds the sum that add_residual() returns, and the layer norm of the sum.
struct SumAndNorm {
  at::Tensor sum, normalized;
};
SumAndNorm add_residual_and_normalize(const at::Tensor& residual, const at::Tensor& output,
                                      const at::Tensor& bias, const DropoutMask& kept,
                                      const at::Tensor& norm_weight, const at::Tensor& norm_bias);

// On the CPU, feed_forward() runs the position-wise feed-forward network without its last bias, as
// one operation with its own gradient. lib/nn/layers.cpp computes the same by plain operations.

// Returns dropout(relu(states W1^T + b1)) W2^T for `states` [.., d_model], W1 [d_inner, d_model],
// b1 [d_inner] and W2 [d_model, d_inner]. `kept` is the mask of [.., d_inner]. The caller adds the
// last bias together with the residual connection (add_residual()).
at::Tensor feed_forward(const at::Tensor& states, const at::Tensor& inner_weight,
                        const at::Tensor& inner_bias, const at::Tensor& outer_weight,
                        const DropoutMask& kept);

}  // namespace ql::kernels
