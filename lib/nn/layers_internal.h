// Runs one Transformer-XL layer: relative attention and a position-wise feed-forward network, each
// with residual and layer norm (before it when `pre_lnorm`, else after the sum).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/window_projection.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/dropout.h"
#include "nn/parameters.h"

namespace ql::nn {

// Everything that a layer reads besides its input.
struct LayerContext {
  const net::Network& network;
  const LayerParameters& parameters;
  const StepOptions& step;
  std::int64_t layer;  // its index, which names its random numbers
  net::AttentionReach reach = {};
  at::Tensor* usage = nullptr;      // if given, becomes the attention_usage() of the window
  at::Tensor hidden = {};           // hidden_keys() of the window, or undefined
  std::int64_t keys_per_state = 1;  // as net::Stage has it
  // project_positions() of the window, if it was made already.
  at::Tensor projected_positions = {};
  // If given, becomes the queries, keys and values of the window, without gradient.
  kernels::QueriesKeysValues* projected = nullptr;
};

// `window` [batch, memory + segment, d_model] holds un-normalized states, `states` [batch, segment,
// d_model] its last ones; `positions` [window, d_model] the sinusoids of the distances window-1 ..
// 0. Returns [batch, segment, d_model]. On the CPU, operations of our own do it in fewer passes
// over memory. They take the window's memory as constant, so a step with
// StepOptions::through_memory does not use them.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& window,
                     const at::Tensor& states, const at::Tensor& positions);

// The same on any device, by ATen's operations where gradients are made.
at::Tensor run_layer_of_operations(const LayerContext& context, const at::Tensor& window,
                                   std::int64_t segment, const at::Tensor& positions);

// The same in parts, for keys and values that come from elsewhere than a window's states: `states`
// [batch, segment, d_model], `normalized` their attention_states(), `keys_values` those of the
// window, as AttentionInput has them.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& states,
                     const at::Tensor& normalized, const std::vector<at::Tensor>& keys_values,
                     const at::Tensor& positions);

// Returns the vectors by which distance adds to the scores: [window, n_head, d_head], row k for
// distance window-1-k. Undefined for absolute positions.
at::Tensor project_positions(const LayerContext& context, const at::Tensor& sinusoids);

// Keys and values [batch, length, 2, n_head, d_head] of attention_states() [batch, length,
// d_model].
at::Tensor project_keys_values(const LayerContext& context, const at::Tensor& normalized);

// Returns the input of queries, keys and values: `states` themselves, normalized if `pre_lnorm`.
at::Tensor attention_states(const LayerContext& context, const at::Tensor& states);

// Sinusoids [length, d_model] of `length` distances, the last of them `nearest` and each one more
// than the next: sines, then cosines. Distances above network.clamp_len, if that is set, have the
// sinusoids of clamp_len.
at::Tensor position_table(const net::Network& network, std::int64_t length,
                          const at::TensorOptions& options, std::int64_t nearest = 0);

}  // namespace ql::nn
