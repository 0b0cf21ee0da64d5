// Runs the position-wise feed-forward network without its last bias on the CPU, as one operation
// with a gradient of its own. lib/nn/layers.cpp computes the same by plain operations.
#pragma once

#include <ATen/ATen.h>

#include "kernels/kept_elements.h"

namespace ql::kernels {

// Returns dropout(relu(states W1^T + b1)) W2^T for `states` [.., d_model], W1 [d_inner, d_model],
// b1 [d_inner] and W2 [d_model, d_inner]. `kept` is for [.., d_inner]. The residual's sum adds the
// last bias.
at::Tensor feed_forward(const at::Tensor& states, const at::Tensor& inner_weight,
                        const at::Tensor& inner_bias, const at::Tensor& outer_weight,
                        const KeptElements& kept);

}  // namespace ql::kernels
