// Computes one Transformer-XL layer: softmax or linear attention, and a position-wise feed-forward
// network, each with a residual connection and a layer norm. The norm comes first if `pre_lnorm` is
// true, otherwise after the residual sum.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/projection.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/parameters.h"
#include "nn/step_options.h"

namespace ql::nn {

// Holds all that a layer reads besides its input, and pointers to optional results.
struct LayerContext {
  const net::Network& network;
  const LayerParameters& parameters;
  const StepOptions& step;
  std::int64_t layer;  // index of the layer, which selects its random bits
  net::AttentionWindow reach = {};
  at::Tensor* usage = nullptr;      // if given, is set to the attention_usage() of the window
  at::Tensor hidden = {};           // attention_mask() of the window, or undefined
  std::int64_t keys_per_state = 1;  // as in net::Stage
  // position_scores() of the window, if the caller has them already (nn/encoding.h).
  at::Tensor position_scores = {};
  // If given, is set to the segment's queries and the window's keys and values, without gradient.
  kernels::QueriesKeysValues* projected = nullptr;
};

// Runs the layer. `window` [batch, memory + segment, d_model] holds states before the norm, and
// `states` [batch, segment, d_model] are the window's last states. `positions` is the
// position_table() of the window. Returns [batch, segment, d_model]. On the CPU, operations of our
// own compute the layer with fewer passes over its tensors. These operations treat the window's
// memory as constant, so a step with StepOptions::through_memory does not use them.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& window,
                     const at::Tensor& states, const at::Tensor& positions);

// Runs the layer on any device by separate operations, which also give gradients for the window's
// memory. The parameters and the result are those of run_layer().
at::Tensor run_layer_of_operations(const LayerContext& context, const at::Tensor& window,
                                   const at::Tensor& states, const at::Tensor& positions);

// Runs the layer for keys and values that the caller has projected. `normalized` is the result of
// attention_states() for `states` [batch, segment, d_model]. `keys_values` are the keys and values
// of the window in the form of AttentionInput.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& states,
                     const at::Tensor& normalized, const std::vector<at::Tensor>& keys_values,
                     const at::Tensor& positions);

// Returns keys and values [batch, length, 2, n_head, d_head] of attention_states() [batch, length,
// d_model].
at::Tensor project_keys_values(const LayerContext& context, const at::Tensor& normalized);

// Returns the input of queries, keys and values: `states`, normalized only if `pre_lnorm` is true.
at::Tensor attention_states(const LayerContext& context, const at::Tensor& states);

}  // namespace ql::nn
