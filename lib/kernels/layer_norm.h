// The layer norm of the networks.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

// Is added to the variance. It is the public code's default, with which the golden networks were
// computed.
constexpr double kLayerNormEpsilon = 1e-5;

// Returns what at::layer_norm() does: `states` [..., width] less their mean over the last
// dimension, divided by their deviation, times `weight` [width] plus `bias` [width]. On the CPU,
// without gradients, a kernel of our own computes it.
at::Tensor layer_norm(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace ql::kernels
