// Computes one Transformer-XL layer: relative or linear attention, and a position-wise feed-forward
// network, each with residual and layer norm (before it if `pre_lnorm`, else after the sum).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/projection.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/dropout.h"
#include "nn/parameters.h"

namespace ql::nn {

// Holds everything that a layer reads besides its input.
struct LayerContext {
  const net::Network& network;
  const LayerParameters& parameters;
  const StepOptions& step;
  std::int64_t layer;  // its index, which is part of the address of its random bits
  net::AttentionWindow reach = {};
  at::Tensor* usage = nullptr;      // if given, is set to the attention_usage() of the window
  at::Tensor hidden = {};           // attention_mask() of the window, or undefined
  std::int64_t keys_per_state = 1;  // as in net::Stage
  // position_scores() of the window, if the caller has them already (nn/encoding.h).
  at::Tensor position_scores = {};
  // If given, is set to the queries, keys and values of the window, without gradient.
  kernels::QueriesKeysValues* projected = nullptr;
};

// `window` [batch, memory + segment, d_model] holds un-normalized states, `states` [batch, segment,
// d_model] its last ones; `positions` is the position_table() of the window. Returns [batch,
// segment, d_model]. On the CPU, operations of our own compute it in fewer passes over memory. They
// treat the window's memory as constant, so a step with StepOptions::through_memory does not use
// them.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& window,
                     const at::Tensor& states, const at::Tensor& positions);

// Does the same on any device, by ATen's operations if gradients are recorded.
at::Tensor run_layer_of_operations(const LayerContext& context, const at::Tensor& window,
                                   std::int64_t segment, const at::Tensor& positions);

// Does the same in parts, for keys and values that are not projected from a window: `states`
// [batch, segment, d_model], `normalized` their attention_states(), and `keys_values` those of the
// window in the form of AttentionInput.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& states,
                     const at::Tensor& normalized, const std::vector<at::Tensor>& keys_values,
                     const at::Tensor& positions);

// Returns keys and values [batch, length, 2, n_head, d_head] of attention_states() [batch, length,
// d_model].
at::Tensor project_keys_values(const LayerContext& context, const at::Tensor& normalized);

// Returns the input of queries, keys and values: `states` themselves, normalized if `pre_lnorm`.
at::Tensor attention_states(const LayerContext& context, const at::Tensor& states);

// Attention in time linear in the window (Katharopoulos et al., 2020): it keeps a sum over keys and
// values instead of the scores of all pairs.

// Let f(x) = elu(x) + 1 be the feature map. The rows r of `positions` are counted from the window's
// end, for queries and for keys. Then
//
//   w_ij = f(q_i + u + r_i) . f(k_j + v + r_j)
//   sum_i = (sum_j w_ij value_j) / (1e-6 + sum_j w_ij)
//
// for the keys j <= m + i of query i, which is at window index m + i. The parameters are thus those
// of relative attention. Returns [batch, segment, H, d_head]. The input must have no reach and no
// probability_kept.
at::Tensor linear_attention(const kernels::AttentionInput& input);

}  // namespace ql::nn
