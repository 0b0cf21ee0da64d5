// Softmax cross entropy over the whole vocabulary.
#pragma once

#include <ATen/ATen.h>

namespace ql::nn {

// -log softmax(states weight^T + bias)[target] for every row: states [rows, d_model], weight
// [vocab_size, d_model], bias [vocab_size], targets [rows] int64. Returns [rows].
at::Tensor cross_entropy(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets);

}  // namespace ql::nn
