// Computes relative attention and its gradients on the CPU, outside of autograd. Each (stream,
// head) goes by blocks of queries through small products (kernels/small_product.h), softmax and
// dropout. A head with dilation d is computed as d heads without one, each with every d-th query
// and key. Results do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/vector.h"

namespace ql::kernels {

struct AttentionResult {
  at::Tensor sums;  // [batch, segment, H, d_head]
  // The probabilities before dropout [batch, H, segment, keys], for attention_backward(). A query's
  // row begins with the keys of its dilation, side by side; `keys` is their largest number, rounded
  // up to 64 bytes.
  at::Tensor probabilities;
};

// The gradients have the shapes of the input, and are undefined where it is.
struct AttentionGradients {
  at::Tensor queries, keys_values, positions, content_bias, position_bias;
};

// Tensors are on the CPU, all float32 or all float64, and contiguous but for the distance between
// the streams of a part, which may even overlap. `probabilities` is left undefined unless `keep`.
AttentionResult attention_forward(const AttentionInput& input, bool keep,
                                  machine::VectorVersion version = machine::vector_version());

// The window must be in one part. `sums_gradient` [batch, segment, H, d_head] must be contiguous.
AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient,
                                      machine::VectorVersion version = machine::vector_version());

}  // namespace ql::kernels
