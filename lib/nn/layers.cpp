#include "nn/layers.h"

#include <vector>

#include "nn/attention.h"

namespace ql::nn {
namespace {

// The public code's default; the golden networks were computed with it.
constexpr double kLayerNormEpsilon = 1e-5;

at::Tensor normalize(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(states, {states.size(-1)}, weight, bias, kLayerNormEpsilon);
}

at::Tensor attend(const LayerContext& context, const at::Tensor& window, std::int64_t segment,
                  const at::Tensor& positions) {
  const net::Network& network = context.network;
  const AttentionParameters& parameters = context.parameters.attention;
  const std::int64_t batch = window.size(0), length = window.size(1);
  const std::int64_t heads = network.n_head, d_head = network.d_head, d_heads = heads * d_head;

  // The memory needs no queries: two products cost less than one over the whole window.
  const at::Tensor recent = window.narrow(1, length - segment, segment);
  const at::Tensor queries = at::linear(recent, parameters.qkv_net.narrow(0, 0, d_heads));
  const at::Tensor keys_values =
      at::linear(window, parameters.qkv_net.narrow(0, d_heads, 2 * d_heads))
          .view({batch, length, 2, heads, d_head});

  AttentionInput input;
  input.queries = queries.view({batch, segment, heads, d_head});
  input.keys_values = keys_values;
  input.positions = at::linear(positions, parameters.r_net).view({length, heads, d_head});
  input.content_bias = parameters.r_w_bias;
  input.position_bias = parameters.r_r_bias;
  if (context.step.training && network.dropatt > 0) {
    input.probability_mask =
        dropout_mask({batch, heads, segment, length}, network.dropatt, context.step,
                     {Place::kAttentionProbability, context.layer}, window.options());
  }
  const at::Tensor sums = relative_attention(input).reshape({batch, segment, d_heads});
  return dropout(at::linear(sums, parameters.o_net), network.dropout, context.step,
                 {Place::kAttentionOutput, context.layer});
}

at::Tensor feed_forward(const LayerContext& context, const at::Tensor& states) {
  const FeedForwardParameters& parameters = context.parameters.feed_forward;
  const double rate = context.network.dropout;
  at::Tensor inner = at::relu(at::linear(states, parameters.inner_weight, parameters.inner_bias));
  inner = dropout(inner, rate, context.step, {Place::kInner, context.layer});
  return dropout(at::linear(inner, parameters.outer_weight, parameters.outer_bias), rate,
                 context.step, {Place::kFeedForward, context.layer});
}

}  // namespace

at::Tensor run_layer(const LayerContext& context, const at::Tensor& window, std::int64_t segment,
                     const at::Tensor& positions) {
  const AttentionParameters& attention = context.parameters.attention;
  const FeedForwardParameters& forward = context.parameters.feed_forward;
  const at::Tensor recent = window.narrow(1, window.size(1) - segment, segment);
  const at::Tensor attended =
      recent + attend(context, attention_states(context, window), segment, positions);
  if (context.network.pre_lnorm) {
    const at::Tensor& states = attended;
    return states +
           feed_forward(context, normalize(states, forward.norm_weight, forward.norm_bias));
  }
  const at::Tensor states = normalize(attended, attention.norm_weight, attention.norm_bias);
  return normalize(states + feed_forward(context, states), forward.norm_weight, forward.norm_bias);
}

at::Tensor attention_states(const LayerContext& context, const at::Tensor& states) {
  const AttentionParameters& attention = context.parameters.attention;
  return context.network.pre_lnorm ? normalize(states, attention.norm_weight, attention.norm_bias)
                                   : states;
}

at::Tensor position_table(std::int64_t length, std::int64_t d_model,
                          const at::TensorOptions& options) {
  const auto wide = at::TensorOptions(at::kDouble);
  const at::Tensor distances = at::arange(length - 1, -1, -1, wide);
  const at::Tensor frequencies =
      at::pow(10000.0, at::arange(0, d_model, 2, wide) / static_cast<double>(-d_model));
  const at::Tensor angles = distances.unsqueeze(1) * frequencies.unsqueeze(0);
  return at::cat({angles.sin(), angles.cos()}, 1).to(options);
}

}  // namespace ql::nn
