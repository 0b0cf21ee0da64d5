// Softmax cross entropy over the whole vocabulary.
#pragma once

#include <ATen/ATen.h>

namespace ql::nn {

// -log softmax(states weight^T + bias)[target] for every row: states [rows, d_model], weight
// [vocab_size, d_model], bias [vocab_size], targets [rows] int64. Returns [rows].
//
// On the CPU the [rows, vocab_size] matrices exist only in blocks of rows, and the gradients are
// made in the same pass as the losses: for a gradient that is the same for every row, as that of a
// sum or a mean. Another gradient is exact too, but costs a second pass.
at::Tensor cross_entropy(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets);

}  // namespace ql::nn
