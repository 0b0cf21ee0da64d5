// Relative attention on the CPU in one pass over each (stream, head): scores, softmax, dropout and
// the sums of the values, and their gradients. Outside of autograd; results do not depend on the
// number of threads.
#pragma once

#include <ATen/ATen.h>

#include "nn/attention.h"

namespace ql::nn {

struct AttentionResult {
  at::Tensor sums;           // [batch, segment, H, d_head]
  at::Tensor probabilities;  // [batch, H, segment, window], before dropout; 0 in the future
};

// Shaped like the input.
struct AttentionGradients {
  at::Tensor queries, keys_values, positions, content_bias, position_bias;
};

// Tensors are contiguous, on the CPU, all float32 or all float64.
AttentionResult attention_forward(const AttentionInput& input);

// `sums_gradient` [batch, segment, H, d_head], contiguous.
AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient);

}  // namespace ql::nn
