// Computes queries, keys and values of a layer on the CPU, as one operation with a gradient of its
// own. lib/nn/layers.cpp computes the same by plain operations.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

struct QueriesKeysValues {
  at::Tensor queries;      // [batch, segment, n_head, d_head]
  at::Tensor keys_values;  // [batch, window, 2, n_head, d_head]
};

// `states` [batch, segment, d_model] are the last of `window` [batch, window, d_model]; both are
// normalized first when norm_weight and norm_bias [d_model] are defined. qkv_net is
// [3 * n_head * d_head, d_model].
//
// The rest of the window is memory, which takes no gradient. That saves a product: the norm is
// folded into the weights, W (x * w + b) = (W * w) x + W b, so that only the weights' gradient is
// computed for the memory's part. The norm's gradient follows from it.
QueriesKeysValues project_window(const at::Tensor& states, const at::Tensor& window,
                                 const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                                 const at::Tensor& qkv_net, std::int64_t heads);

}  // namespace ql::kernels
