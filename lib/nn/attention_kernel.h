// Relative attention on the CPU in one pass over each (stream, head): scores, softmax, dropout and
// the sums of the values, and their gradients. Outside of autograd; results do not depend on the
// number of threads.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>

#include "nn/attention.h"

namespace ql::nn {

struct AttentionResult {
  at::Tensor sums;           // [batch, segment, H, d_head]
  at::Tensor probabilities;  // [batch, H, segment, window], before dropout; 0 where not seen
};

// Shaped like the input; undefined where that is.
struct AttentionGradients {
  at::Tensor queries, keys_values, positions, content_bias, position_bias;
};

// Parts of the window that one call takes: compressed memory, memory and segment.
constexpr std::size_t kMostParts = 3;

// Tensors are on the CPU, all float32 or all float64, and contiguous but for the distance between
// the streams of a part, which may even overlap. `probabilities` is left undefined unless `keep`.
AttentionResult attention_forward(const AttentionInput& input, bool keep);

// Of a window in one part. `sums_gradient` [batch, segment, H, d_head], contiguous.
AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient);

}  // namespace ql::nn
