// The position-wise feed-forward network without its last bias, as one operation with a gradient of
// its own; on the CPU. The plain operations in lib/nn/layers.cpp say the same.
#pragma once

#include <ATen/ATen.h>

#include "kernels/kept_elements.h"

namespace ql::kernels {

// dropout(relu(states W1^T + b1)) W2^T: `states` [.., d_model], W1 [d_inner, d_model], b1
// [d_inner], W2 [d_model, d_inner]; `kept` of [.., d_inner]. The last bias is left to the
// residual's sum.
at::Tensor feed_forward(const at::Tensor& states, const at::Tensor& inner_weight,
                        const at::Tensor& inner_bias, const at::Tensor& outer_weight,
                        const KeptElements& kept);

}  // namespace ql::kernels
