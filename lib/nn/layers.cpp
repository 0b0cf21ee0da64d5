// Runs a layer by our own fused operations or by separate ones, and implements linear attention.

#include "nn/layers.h"

#include <ATen/core/grad_mode.h>

#include "kernels/dropout_kernel.h"
#include "kernels/feed_forward.h"
#include "machine/device.h"
#include "machine/threads.h"
#include "net/cost.h"
#include "nn/dropout.h"
#include "nn/encoding.h"
#include "nn/measure.h"

namespace ql::nn {

namespace {

// Returns a + b. If the two tensors have the same precision, the sum overwrites `a`. If not, the
// sum has the wider precision: a layer's sums stay float32 if its matrix products are bfloat16.
at::Tensor sum_of(at::Tensor a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() ? a.add_(b) : a + b;
}

// The memory needs no queries, so a separate matrix product for queries costs less than a joint
// product with keys and values over the complete window.
at::Tensor project_queries(const net::Network& network, const at::Tensor& normalized,
                           const at::Tensor& weight) {
  return kernels::project(normalized, weight).unflatten(2, {network.n_head, network.d_head});
}

at::Tensor project_keys_values(const net::Network& network, const at::Tensor& normalized,
                               const at::Tensor& weight) {
  return kernels::project(normalized, weight).unflatten(2, {2, network.n_head, network.d_head});
}

// Blocks of this many queries are small compared with the window and large enough for matrix
// products.
using net::kLinearBlock;
// Keeps the quotient finite if all features vanish.
constexpr double kSmallestSum = 1e-6;

// Returns f(states + bias + positions) with f(x) = elu(x) + 1: [batch, length, H, d_head] ->
// [batch, H, length, d_head]. `positions` is [length, H, d_head].
at::Tensor features(const at::Tensor& states, const at::Tensor& bias, const at::Tensor& positions) {
  at::Tensor sum = bias.defined() ? states + bias : states;
  sum = positions.defined() ? sum + positions : sum;
  return (at::elu(sum) + 1).transpose(1, 2);
}

at::Tensor last_rows(const at::Tensor& positions, std::int64_t count) {
  return positions.defined() ? positions.narrow(0, positions.size(0) - count, count) : positions;
}

// Holds sums over the keys so far; f is the feature map of linear_attention().
struct Sums {
  at::Tensor values;   // sum of f(key)^T value, [batch, H, d_head, d_head]
  at::Tensor weights;  // sum of f(key), [batch, H, d_head, 1]

  void add(const at::Tensor& keys, const at::Tensor& of_values) {
    values = values + at::matmul(keys.transpose(2, 3), of_values);
    weights = weights + keys.sum(2).unsqueeze(3);
  }
};

// Computes attention in time linear in the window (Katharopoulos et al., 2020): a sum over keys and
// values replaces the scores of all pairs.
//
// Let f(x) = elu(x) + 1 be the feature map. Row r_n of `positions` belongs to window index n, both
// for queries and for keys. Then
//
//   w_ij = f(q_i + u + r_(m+i)) . f(k_j + v + r_j)
//   sum_i = (sum_j w_ij value_j) / (1e-6 + sum_j w_ij)
//
// for the keys j <= m + i of query i, which is at window index m + i after m states of memory. The
// parameters are thus those of relative attention. Returns [batch, segment, H, d_head].
// input.reach must have no bounds, and input.dropout must drop nothing.
at::Tensor linear_attention(const kernels::AttentionInput& input) {
  const std::int64_t streams = input.queries.size(0);
  if (streams > 1 && kernels::BatchInvariant::live()) {
    std::vector<at::Tensor> sums;
    for (std::int64_t stream = 0; stream < streams; ++stream) {
      kernels::AttentionInput alone = input;
      alone.queries = input.queries.narrow(0, stream, 1);
      for (at::Tensor& part : alone.keys_values) part = part.narrow(0, stream, 1);
      sums.push_back(linear_attention(alone));
    }
    return at::cat(sums);
  }
  if (input.queries.scalar_type() == at::kHalf) {
    // The sums over a window of some hundred states are above the largest number of float16.
    const machine::Autocast unrounded(input.queries.device(), machine::Precision::kFloat32);
    kernels::AttentionInput wider = input;
    wider.queries = input.queries.to(at::kFloat);
    return linear_attention(wider);
  }
  const std::int64_t segment = input.queries.size(1), memory = input.window() - segment;
  const at::Tensor keys_values =
      (input.keys_values.size() == 1 ? input.keys_values.front() : at::cat(input.keys_values, 1))
          .to(input.queries.scalar_type());
  const at::Tensor queries =
      features(input.queries, input.content_bias, last_rows(input.positions, segment));
  const at::Tensor keys = features(keys_values.select(2, 0), input.position_bias, input.positions);
  const at::Tensor values = keys_values.select(2, 1).transpose(1, 2);

  const std::int64_t batch = queries.size(0), heads = queries.size(1), width = queries.size(3);
  Sums sums{at::zeros({batch, heads, width, width}, queries.options()),
            at::zeros({batch, heads, width, 1}, queries.options())};
  if (memory > 0) sums.add(keys.narrow(2, 0, memory), values.narrow(2, 0, memory));
  std::vector<at::Tensor> results;
  for (std::int64_t first = 0; first < segment; first += kLinearBlock) {
    const std::int64_t count = std::min(kLinearBlock, segment - first);
    const at::Tensor query = queries.narrow(2, first, count);
    const at::Tensor key = keys.narrow(2, memory + first, count);
    const at::Tensor value = values.narrow(2, memory + first, count);
    const at::Tensor pairs = at::tril(at::matmul(query, key.transpose(2, 3)));
    const at::Tensor numerator = at::matmul(query, sums.values) + at::matmul(pairs, value);
    const at::Tensor denominator = at::matmul(query, sums.weights) + pairs.sum(3, true);
    results.push_back(numerator / (denominator + kSmallestSum));
    if (first + count < segment) sums.add(key, value);
  }
  return at::cat(results, 2).transpose(1, 2);
}

// Runs attention for queries [batch, segment, n_head, d_head] and projects the heads' sums [batch,
// segment, n_head * d_head] back to d_model. The caller applies dropout to the result.
at::Tensor attend(const LayerContext& context, const at::Tensor& queries,
                  const std::vector<at::Tensor>& keys_values) {
  const net::Network& network = context.network;
  const AttentionParameters& parameters = context.parameters.attention;
  const std::int64_t batch = queries.size(0), segment = queries.size(1);
  const std::int64_t heads = network.n_head, d_heads = heads * network.d_head;
  const std::int64_t keys = context.keys_per_state;

  kernels::AttentionInput input;
  // If `keys` > 1, a query's state was pooled from `keys` finer states, each with its own key in
  // the window. Attention expects a query for each key of the segment, so each query is repeated
  // `keys` times. Only the result at the index of the last key is used.
  input.queries = keys > 1 ? queries.repeat_interleave(keys, 1) : queries;
  input.keys_values = keys_values;
  input.positions = context.position_scores.defined()
                        ? context.position_scores
                        : position_scores(network, parameters, context.position_table);
  input.content_bias = parameters.r_w_bias;
  input.position_bias = parameters.r_r_bias;
  input.reach = context.reach;
  input.rounds = kernels::weight_factor(parameters.o_net).scalar_type() == at::kBFloat16;
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
    input.dropout = dropout_draw({batch, heads, segment, input.window()}, network.dropatt,
                                 context.step, {DropoutSite::kAttentionProbability, context.layer});
    input.queries_per_mask = keys;
  }
  at::Tensor sums = network.attention == net::Attention::kLinear
                        ? linear_attention(input)
                        : kernels::relative_attention(input);
  if (keys > 1) sums = sums.unflatten(1, {segment, keys}).select(2, keys - 1);
  return kernels::project(sums.reshape({batch, segment, d_heads}), parameters.o_net);
}

at::Tensor feed_forward_of_operations(const LayerContext& context, const at::Tensor& states) {
  const FeedForwardParameters& parameters = context.parameters.feed_forward;
  const double rate = context.network.dropout;
  at::Tensor inner = kernels::project(states, parameters.inner_weight, parameters.inner_bias);
  // `inner` is a view of the matrix product. If gradients are recorded, changing a view in place
  // costs a copy in the backward pass.
  inner = at::GradMode::is_enabled() ? at::relu(inner) : inner.relu_();
  inner = dropout(inner, rate, context.step, {DropoutSite::kInner, context.layer});
  return dropout(kernels::project(inner, parameters.outer_weight, parameters.outer_bias), rate,
                 context.step, {DropoutSite::kFeedForward, context.layer});
}

kernels::DropoutMask draw_kept(const LayerContext& context, at::IntArrayRef shape,
                               DropoutSite::Kind kind) {
  const double rate = context.network.dropout;
  if (!context.step.training || rate <= 0) return {};
  return {dropout_kept(shape, rate, context.step, {kind, context.layer}), dropout_factor(rate)};
}

// Runs the part of the layer after attention; `attended` is the result of attention for `states`.
at::Tensor finish_fused_layer(const LayerContext& context, const at::Tensor& states,
                              const at::Tensor& attended) {
  const AttentionParameters& attention = context.parameters.attention;
  const FeedForwardParameters& forward = context.parameters.feed_forward;
  const kernels::DropoutMask attended_kept =
      draw_kept(context, states.sizes(), DropoutSite::kAttentionOutput);
  const auto run_forward = [&](const at::Tensor& input) {
    const std::int64_t batch = states.size(0), segment = states.size(1);
    return feed_forward(
        input, forward.inner_weight, forward.inner_bias, forward.outer_weight,
        draw_kept(context, {batch, segment, forward.inner_bias.size(0)}, DropoutSite::kInner));
  };
  const kernels::DropoutMask kept = draw_kept(context, states.sizes(), DropoutSite::kFeedForward);
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

// Does the same by separate operations.
at::Tensor finish_layer_of_operations(const LayerContext& context, const at::Tensor& states,
                                      const at::Tensor& attended) {
  const AttentionParameters& attention = context.parameters.attention;
  const FeedForwardParameters& forward = context.parameters.feed_forward;
  // sum_of() may overwrite its first operand: nothing else holds that operand, and no gradient
  // needs it.
  const at::Tensor sum = sum_of(dropout(attended, context.network.dropout, context.step,
                                        {DropoutSite::kAttentionOutput, context.layer}),
                                states);
  if (context.network.pre_lnorm) {
    return sum_of(feed_forward_of_operations(
                      context, kernels::layer_norm(sum, forward.norm_weight, forward.norm_bias)),
                  sum);
  }
  const at::Tensor middle = kernels::layer_norm(sum, attention.norm_weight, attention.norm_bias);
  return kernels::layer_norm(sum_of(feed_forward_of_operations(context, middle), middle),
                             forward.norm_weight, forward.norm_bias);
}

at::Tensor finish_layer(LayerWay way, const LayerContext& context, const at::Tensor& states,
                        const at::Tensor& attended) {
  return way == LayerWay::kFused ? finish_fused_layer(context, states, attended)
                                 : finish_layer_of_operations(context, states, attended);
}

// Returns the queries of the window's last `segment` states, and the keys and values of the window.
kernels::QueriesKeysValues project_by_operations(const LayerContext& context,
                                                 const at::Tensor& window, std::int64_t segment) {
  const at::Tensor normalized = attention_states(context, window);
  const std::int64_t d_heads = context.network.n_head * context.network.d_head;
  // split_with_sizes() makes one gradient for both weights. Two calls of narrow() would make two
  // gradients of the size of qkv_net, padded with zeros.
  const std::vector<at::Tensor> weights =
      context.parameters.attention.qkv_net.split_with_sizes({d_heads, 2 * d_heads});
  const at::Tensor recent = normalized.narrow(1, window.size(1) - segment, segment);
  return {project_queries(context.network, recent, weights[0]),
          project_keys_values(context.network, normalized, weights[1])};
}

}  // namespace

LayerWay choose_layer_way(const at::Tensor& states, LayerKeys keys, const StepOptions& step) {
  // The fused projection treats the window's memory as constant. With prepared keys, fused
  // operations save time only in a piece, which a single thread computes.
  const bool suits = keys == LayerKeys::kOfWindow
                         ? !step.through_memory
                         : machine::in_piece() && !kernels::BatchInvariant::live();
  return suits && machine::uses_kernels(states) ? LayerWay::kFused : LayerWay::kOperations;
}

at::Tensor run_layer(const LayerContext& context, const at::Tensor& window,
                     const at::Tensor& states) {
  const net::Network& network = context.network;
  const AttentionParameters& attention = context.parameters.attention;
  const LayerWay way = choose_layer_way(states, LayerKeys::kOfWindow, context.step);
  const kernels::QueriesKeysValues projected =
      way == LayerWay::kFused
          ? kernels::project_window(states, window,
                                    network.pre_lnorm ? attention.norm_weight : at::Tensor(),
                                    network.pre_lnorm ? attention.norm_bias : at::Tensor(),
                                    attention.qkv_net, network.n_head)
          : project_by_operations(context, window, states.size(1));
  // A matrix product between scales may have rounded `states` to bfloat16. The memory in `window`
  // is not rounded. With the precision of `window`, the residual sums are not rounded, either.
  return finish_layer(way, context, states.to(window.scalar_type()),
                      attend(context, projected.queries, {projected.keys_values}));
}

at::Tensor run_layer_with_keys(const LayerContext& context, const at::Tensor& states,
                               const at::Tensor& normalized,
                               const std::vector<at::Tensor>& keys_values) {
  const std::int64_t d_heads = context.network.n_head * context.network.d_head;
  const at::Tensor queries = project_queries(
      context.network, normalized, context.parameters.attention.qkv_net.narrow(0, 0, d_heads));
  return finish_layer(choose_layer_way(states, LayerKeys::kPrepared, context.step), context, states,
                      attend(context, queries, keys_values));
}

at::Tensor project_keys_values(const LayerContext& context, const at::Tensor& normalized) {
  const std::int64_t d_heads = context.network.n_head * context.network.d_head;
  return project_keys_values(context.network, normalized,
                             context.parameters.attention.qkv_net.narrow(0, d_heads, 2 * d_heads));
}

at::Tensor attention_states(const LayerContext& context, const at::Tensor& states) {
  const AttentionParameters& attention = context.parameters.attention;
  return context.network.pre_lnorm
             ? kernels::layer_norm(states, attention.norm_weight, attention.norm_bias)
             : states;
}

}  // namespace ql::nn
