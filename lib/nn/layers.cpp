#include "nn/layers_internal.h"

#include "kernels/attention.h"
#include "kernels/feed_forward.h"
#include "kernels/kept_elements.h"
#include "kernels/layer_norm.h"
#include "kernels/projection.h"
#include "kernels/residual.h"
#include "machine/device.h"
#include "machine/pieces.h"
#include "nn/attention_map.h"
#include "nn/linear_attention_internal.h"

namespace ql::nn {
namespace {

// Returns a + b, in place of `a` where both have the same precision: the sum of layers is float32
// whatever the precision of their products.
at::Tensor sum_of(at::Tensor a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() ? a.add_(b) : a + b;
}

// The memory needs no queries, so a product of their own costs less than one over the whole window.
at::Tensor project_queries(const LayerContext& context, const at::Tensor& normalized) {
  const net::Network& network = context.network;
  const std::int64_t d_heads = network.n_head * network.d_head;
  return kernels::project(normalized, context.parameters.attention.qkv_net.narrow(0, 0, d_heads))
      .view({normalized.size(0), normalized.size(1), network.n_head, network.d_head});
}

// Runs attention for queries [batch, segment, n_head, d_head] and projects the heads' sums [batch,
// segment, n_head * d_head] back to d_model. Dropout comes after it.
at::Tensor attend(const LayerContext& context, const at::Tensor& queries,
                  const std::vector<at::Tensor>& keys_values, const at::Tensor& positions) {
  const net::Network& network = context.network;
  const AttentionParameters& parameters = context.parameters.attention;
  const std::int64_t batch = queries.size(0), segment = queries.size(1);
  const std::int64_t heads = network.n_head, d_heads = heads * network.d_head;
  const std::int64_t keys = context.keys_per_state;

  kernels::AttentionInput input;
  // A query stands where the last of its keys does. It is repeated at the others' places, because
  // attention wants a query for each of the window's last keys.
  input.queries = keys > 1 ? queries.repeat_interleave(keys, 1) : queries;
  input.keys_values = keys_values;
  input.positions = context.projected_positions.defined() ? context.projected_positions
                                                          : project_positions(context, positions);
  input.content_bias = parameters.r_w_bias;
  input.position_bias = parameters.r_r_bias;
  input.reach = context.reach;
  input.hidden = context.hidden;
  if (context.projected != nullptr) {
    *context.projected = {queries.detach(), keys_values.front().detach()};
  }
  if (context.usage != nullptr) *context.usage = kernels::attention_usage(input);
  if (context.step.attention_map != nullptr) {
    context.step.attention_map->add(context.layer, kernels::attention_probabilities(input),
                                    context.step.shown);
  }
  if (context.step.training && network.dropatt > 0) {
    input.probability_kept =
        dropout_kept({batch, heads, segment, input.window()}, network.dropatt, context.step,
                     {DropoutSite::kAttentionProbability, context.layer}, queries.device());
    if (keys > 1) input.probability_kept = input.probability_kept.repeat_interleave(keys, 2);
    input.kept_factor = dropout_factor(network.dropatt);
  }
  at::Tensor sums;
  switch (network.attention) {
    case net::Attention::kSoftmax:
      sums = kernels::relative_attention(input);
      break;
    case net::Attention::kLinear:
      sums = linear_attention(input);
      break;
  }
  if (keys > 1) sums = sums.unflatten(1, {segment, keys}).select(2, keys - 1);
  return kernels::project(sums.reshape({batch, segment, d_heads}), parameters.o_net);
}

at::Tensor feed_forward_of_operations(const LayerContext& context, const at::Tensor& states) {
  const FeedForwardParameters& parameters = context.parameters.feed_forward;
  const double rate = context.network.dropout;
  at::Tensor inner =
      kernels::project(states, parameters.inner_weight, parameters.inner_bias).relu_();
  inner = dropout(inner, rate, context.step, {DropoutSite::kInner, context.layer});
  return dropout(kernels::project(inner, parameters.outer_weight, parameters.outer_bias), rate,
                 context.step, {DropoutSite::kFeedForward, context.layer});
}

kernels::KeptElements draw_kept(const LayerContext& context, at::IntArrayRef shape,
                                DropoutSite::Kind kind) {
  return draw_kept(shape, context.network.dropout, context.step, {kind, context.layer});
}

// Runs what follows attention, whose result for the `states` is `attended`.
at::Tensor finish_fused_layer(const LayerContext& context, const at::Tensor& states,
                              const at::Tensor& attended) {
  const AttentionParameters& attention = context.parameters.attention;
  const FeedForwardParameters& forward = context.parameters.feed_forward;
  const kernels::KeptElements attended_kept =
      draw_kept(context, states.sizes(), DropoutSite::kAttentionOutput);
  const auto run_forward = [&](const at::Tensor& input) {
    const std::int64_t batch = states.size(0), segment = states.size(1);
    return feed_forward(
        input, forward.inner_weight, forward.inner_bias, forward.outer_weight,
        draw_kept(context, {batch, segment, forward.inner_bias.size(0)}, DropoutSite::kInner));
  };
  const kernels::KeptElements kept = draw_kept(context, states.sizes(), DropoutSite::kFeedForward);
  if (context.network.pre_lnorm) {
    const kernels::SumAndNorm middle = kernels::add_residual_and_normalize(
        states, attended, {}, attended_kept, forward.norm_weight, forward.norm_bias);
    return kernels::add_residual(middle.sum, run_forward(middle.normalized), forward.outer_bias,
                                 kept);
  }
  const at::Tensor middle =
      kernels::add_residual_and_normalize(states, attended, {}, attended_kept,
                                          attention.norm_weight, attention.norm_bias)
          .normalized;
  return kernels::add_residual_and_normalize(middle, run_forward(middle), forward.outer_bias, kept,
                                             forward.norm_weight, forward.norm_bias)
      .normalized;
}

at::Tensor run_fused_layer(const LayerContext& context, const at::Tensor& window,
                           const at::Tensor& states, const at::Tensor& positions) {
  const net::Network& network = context.network;
  const AttentionParameters& attention = context.parameters.attention;
  const kernels::QueriesKeysValues projected = kernels::project_window(
      states, window, network.pre_lnorm ? attention.norm_weight : at::Tensor(),
      network.pre_lnorm ? attention.norm_bias : at::Tensor(), attention.qkv_net, network.n_head);
  return finish_fused_layer(context, states,
                            attend(context, projected.queries, {projected.keys_values}, positions));
}

}  // namespace

at::Tensor run_layer(const LayerContext& context, const at::Tensor& window,
                     const at::Tensor& states, const at::Tensor& positions) {
  return machine::uses_kernels(window) && !context.step.through_memory
             ? run_fused_layer(context, window, states, positions)
             : run_layer_of_operations(context, window, states.size(1), positions);
}

at::Tensor run_layer_of_operations(const LayerContext& context, const at::Tensor& window,
                                   std::int64_t segment, const at::Tensor& positions) {
  const std::int64_t memory = window.size(1) - segment;
  const at::Tensor normalized = attention_states(context, window);
  return run_layer(context, window.narrow(1, memory, segment),
                   normalized.narrow(1, memory, segment),
                   {project_keys_values(context, normalized)}, positions);
}

at::Tensor run_layer(const LayerContext& context, const at::Tensor& recent,
                     const at::Tensor& normalized, const std::vector<at::Tensor>& keys_values,
                     const at::Tensor& positions) {
  const AttentionParameters& attention = context.parameters.attention;
  const FeedForwardParameters& forward = context.parameters.feed_forward;
  const at::Tensor of_heads =
      attend(context, project_queries(context, normalized), keys_values, positions);
  // The products of a piece have one thread, so their bits do not depend on how many there are.
  if (machine::uses_kernels(recent) && machine::in_piece() && !kernels::RowsApart::live()) {
    return finish_fused_layer(context, recent, of_heads);
  }
  // Sums are made in place: nothing else holds, and no gradient needs, what the parts return.
  const at::Tensor attended = sum_of(dropout(of_heads, context.network.dropout, context.step,
                                             {DropoutSite::kAttentionOutput, context.layer}),
                                     recent);
  if (context.network.pre_lnorm) {
    const at::Tensor& states = attended;
    return sum_of(feed_forward_of_operations(
                      context, kernels::layer_norm(states, forward.norm_weight, forward.norm_bias)),
                  states);
  }
  const at::Tensor states =
      kernels::layer_norm(attended, attention.norm_weight, attention.norm_bias);
  return kernels::layer_norm(sum_of(feed_forward_of_operations(context, states), states),
                             forward.norm_weight, forward.norm_bias);
}

at::Tensor project_positions(const LayerContext& context, const at::Tensor& sinusoids) {
  const net::Network& network = context.network;
  const AttentionParameters& parameters = context.parameters.attention;
  switch (network.encoding) {
    case net::Encoding::kTransformerXl:
      return kernels::project(sinusoids, parameters.r_net)
          .view({sinusoids.size(0), network.n_head, network.d_head});
    case net::Encoding::kShaw: {
      const at::Tensor distances =
          at::arange(sinusoids.size(0) - 1, -1, -1,
                     at::TensorOptions(at::kLong).device(parameters.r_emb.device()))
              .clamp_max(network.clamp_len);
      return parameters.r_emb.index_select(0, distances);
    }
    case net::Encoding::kAbsolute:
      break;
  }
  return {};
}

at::Tensor project_keys_values(const LayerContext& context, const at::Tensor& normalized) {
  const net::Network& network = context.network;
  const std::int64_t d_heads = network.n_head * network.d_head;
  const at::Tensor weight = context.parameters.attention.qkv_net.narrow(0, d_heads, 2 * d_heads);
  return kernels::project(normalized, weight)
      .view({normalized.size(0), normalized.size(1), 2, network.n_head, network.d_head});
}

at::Tensor attention_states(const LayerContext& context, const at::Tensor& states) {
  const AttentionParameters& attention = context.parameters.attention;
  return context.network.pre_lnorm
             ? kernels::layer_norm(states, attention.norm_weight, attention.norm_bias)
             : states;
}

at::Tensor position_table(const net::Network& network, std::int64_t length,
                          const at::TensorOptions& options, std::int64_t nearest) {
  const auto wide = at::TensorOptions(at::kDouble).device(options.device());
  const std::int64_t d_model = network.d_model;
  at::Tensor distances = at::arange(nearest + length - 1, nearest - 1, -1, wide);
  if (network.clamp_len > 0) distances = distances.clamp_max(network.clamp_len);
  const at::Tensor frequencies =
      at::pow(10000.0, at::arange(0, d_model, 2, wide) / static_cast<double>(-d_model));
  const at::Tensor angles = distances.unsqueeze(1) * frequencies.unsqueeze(0);
  return at::cat({angles.sin(), angles.cos()}, 1).to(options);
}

}  // namespace ql::nn
