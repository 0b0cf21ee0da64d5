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
  at::Tensor position_table = {};   // of the window (nn/encoding.h)
  // position_scores() of the window, if the caller has them already.
  at::Tensor position_scores = {};
  // If given, is set to the segment's queries and the window's keys and values, without gradient.
  kernels::QueriesKeysValues* projected = nullptr;
};

// The keys and values of a layer come from the states of its window, or the caller has prepared
// them, because several calls share them.
enum class LayerKeys { kOfWindow, kPrepared };

// Our own kernels compute the projections of a window and everything after attention in few passes
// over the tensors. Separate operations compute the same on any device, and also give gradients for
// the window's memory. Both ways use the kernels of attention if machine::uses_kernels().
enum class LayerWay { kFused, kOperations };

// Chooses the way through a layer for the segment's `states` (the table is in share/doc/design.md,
// "Ways through a layer"). With prepared keys, the way depends on the calling thread: it is kFused
// inside a piece of work (machine/threads.h), and kOperations if a kernels::BatchInvariant lives.
LayerWay choose_layer_way(const at::Tensor& states, LayerKeys keys, const StepOptions& step);

// Runs the layer. `window` [batch, memory + segment, d_model] holds states before the norm, and
// `states` [batch, segment, d_model] are the window's last states. Returns [batch, segment,
// d_model]. The window's memory gets a gradient only with StepOptions::through_memory.
at::Tensor run_layer(const LayerContext& context, const at::Tensor& window,
                     const at::Tensor& states);

// Runs the layer with keys and values that the caller has prepared. `normalized` is the result of
// attention_states() for `states` [batch, segment, d_model]. `keys_values` are the keys and values
// of the window in the form of AttentionInput.
at::Tensor run_layer_with_keys(const LayerContext& context, const at::Tensor& states,
                               const at::Tensor& normalized,
                               const std::vector<at::Tensor>& keys_values);

// Returns keys and values [batch, length, 2, n_head, d_head] of attention_states() [batch, length,
// d_model].
at::Tensor project_keys_values(const LayerContext& context, const at::Tensor& normalized);

// Returns the input of queries, keys and values: `states`, normalized only if `pre_lnorm` is true.
at::Tensor attention_states(const LayerContext& context, const at::Tensor& states);

}  // namespace ql::nn
