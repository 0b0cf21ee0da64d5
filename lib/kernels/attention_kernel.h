// Relative attention on the CPU, for each (stream, head) in blocks of queries: scores, softmax,
// dropout and the sums of the values, and their gradients, as small products
// (kernels/small_product.h). A head with dilation d is d heads without one, each with every d-th
// query and key. Outside of autograd; results do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/vector.h"

namespace ql::kernels {

struct AttentionResult {
  at::Tensor sums;  // [batch, segment, H, d_head]
  // What attention_backward() needs, one number for each query, head and key: the probabilities
  // before dropout [batch, H, segment, keys]. A query's row begins with the keys of its dilation,
  // side by side; `keys` is their largest number, rounded up to 64 bytes.
  at::Tensor probabilities;
};

// Shaped like the input; undefined where that is.
struct AttentionGradients {
  at::Tensor queries, keys_values, positions, content_bias, position_bias;
};

// Tensors are on the CPU, all float32 or all float64, and contiguous but for the distance between
// the streams of a part, which may even overlap. `probabilities` is left undefined unless `keep`.
AttentionResult attention_forward(const AttentionInput& input, bool keep,
                                  machine::VectorVersion version = machine::vector_version());

// Of a window in one part. `sums_gradient` [batch, segment, H, d_head], contiguous.
AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient,
                                      machine::VectorVersion version = machine::vector_version());

}  // namespace ql::kernels
