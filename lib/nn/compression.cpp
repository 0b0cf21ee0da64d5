// Pools states between scales, averages the scales, and compresses the states that leave the memory
// of a Compressive Transformer. Computes the losses by which a layer learns this compression.

#include "nn/compression.h"

#include <ATen/core/grad_mode.h>

#include <tuple>

namespace ql::nn {

at::Tensor compress(const at::Tensor& states, net::Pool pool, std::int64_t rate) {
  return net::pool_groups(states.unflatten(1, {states.size(1) / rate, rate}), pool);
}

at::Tensor upsample(const at::Tensor& states, const at::Tensor& previous,
                    const net::Stage& output) {
  if (output.stride == 1) return states;
  // The first new state covers the tokens 0 .. stride - 1. The tokens before stride - 1 need an
  // older state, because they must not see later tokens. This older state is the first of
  // `sources`.
  at::Tensor sources;
  if (output.segment > output.new_states) {
    sources = states.narrow(1, output.segment - output.new_states - 1, output.new_states + 1);
  } else {
    const at::Tensor before =
        previous.defined() ? previous : at::zeros_like(states.narrow(1, 0, 1));
    sources = at::cat({before, states}, 1);
  }
  // Token p takes source (p + 1) / stride.
  const std::int64_t tokens = output.new_states * output.stride;
  return sources.unsqueeze(2)
      .expand({-1, -1, output.stride, -1})
      .flatten(1, 2)
      .narrow(1, 1, tokens);
}

at::Tensor average_scales(const std::vector<at::Tensor>& scales, double droppath,
                          const StepOptions& step) {
  if (step.scale_weights.defined()) {
    at::Tensor sum = scales.front() * step.scale_weights.select(0, 0);
    for (std::size_t i = 1; i < scales.size(); ++i) {
      sum = sum + scales[i] * step.scale_weights.select(0, static_cast<std::int64_t>(i));
    }
    return sum;
  }
  const auto count = static_cast<std::int64_t>(scales.size());
  const std::int64_t first = droppath_first_scale(count, droppath, step);
  at::Tensor sum = scales[static_cast<std::size_t>(first)];
  for (std::int64_t i = first + 1; i < count; ++i) sum = sum + scales[static_cast<std::size_t>(i)];
  return count - first > 1 ? sum / static_cast<double>(count - first) : sum;
}

std::vector<double> droppath_weights(std::int64_t scales, double droppath,
                                     const StepOptions& step) {
  const std::int64_t first = droppath_first_scale(scales, droppath, step);
  std::vector<double> weights(static_cast<std::size_t>(scales), 0.0);
  std::fill(weights.begin() + first, weights.end(), 1 / static_cast<double>(scales - first));
  return weights;
}

// Returns, without gradient, the parameters that make queries, keys and values.
static LayerParameters hold(const LayerParameters& parameters) {
  LayerParameters held;
  held.attention.qkv_net = parameters.attention.qkv_net.detach();
  held.attention.norm_weight = parameters.attention.norm_weight.detach();
  held.attention.norm_bias = parameters.attention.norm_bias.detach();
  return held;
}

// Returns the `states` in groups, [batch, n / c, c, d_model]. The convolution makes one compressed
// state from the c states of each group.
static at::Tensor convolution_groups(const net::Network& network, const at::Tensor& states) {
  const std::int64_t rate = network.rate, count = states.size(1) / rate;
  return network.pool == net::Pool::kDilatedConvolution
             ? states.unflatten(1, {rate, count}).transpose(1, 2)
             : states.unflatten(1, {count, rate});
}

static at::Tensor keep_most_used(const at::Tensor& states, const at::Tensor& usage,
                                 std::int64_t count) {
  // A stable sort of the reversed order puts the newer of two equally used states first.
  const at::Tensor newest_first = usage.flip(1);
  const at::Tensor most_used = std::get<1>(at::sort(newest_first, /*stable=*/true, 1, true));
  const at::Tensor kept = usage.size(1) - 1 - most_used.narrow(1, 0, count);
  const at::Tensor in_order = std::get<0>(at::sort(kept, 1));
  return states.gather(1, in_order.unsqueeze(2).expand({-1, -1, states.size(2)}));
}

// Every query sees every key, because the comparison in attention_reconstruction() ignores
// positions.
static at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys_values) {
  kernels::AttentionInput input;
  input.queries = queries;
  input.keys_values = {keys_values};
  input.sees_all = true;
  return kernels::relative_attention(input);
}

// A layer learns its compression by one of two losses, each a mean squared error. `compressed` is
// the result of compress_memories() for the evicted states, which have no gradient. Through
// `compressed` the gradient reaches the convolution's weights. It also reaches the weights of a
// decoder, but no other weights of the network.

// Returns the mean squared difference between the results of attend() over `compressed` and over
// the evicted states. `projected` has the layer's queries, and the keys and values of the evicted
// states.
static at::Tensor attention_reconstruction(const LayerContext& context,
                                           const kernels::QueriesKeysValues& projected,
                                           const at::Tensor& compressed) {
  const LayerParameters held = hold(context.parameters);
  const LayerContext fixed{context.network, held, context.step, context.layer};
  const at::Tensor of_states = [&] {
    const at::NoGradGuard no_gradient;
    return attend(projected.queries, projected.keys_values);
  }();
  const at::Tensor of_compressed =
      attend(projected.queries, project_keys_values(fixed, attention_states(fixed, compressed)));
  return at::mse_loss(of_compressed, of_states);
}

// Compares the evicted `states` with what the layer's decoder computes from `compressed`.
static at::Tensor auto_encoding(const LayerContext& context, const at::Tensor& states,
                                const at::Tensor& compressed) {
  const CompressionParameters& parameters = context.parameters.compression;
  const at::Tensor groups = convolution_groups(context.network, states);
  // The weight is reordered, so that one matrix product decodes all states in the order of
  // `groups`.
  const auto arrange = [](const at::Tensor& weight) {
    return weight.permute({2, 1, 0}).flatten(0, 1);
  };
  const at::Tensor weight = arrange(parameters.decoder_weight);
  const at::Tensor factor = kernels::weight_factor(parameters.decoder_weight);
  const at::Tensor decoded =
      kernels::project(compressed, weight, {},
                       factor.is_same(parameters.decoder_weight) ? weight : arrange(factor))
          .view(groups.sizes());
  return at::mse_loss(decoded + parameters.decoder_bias, groups);
}

at::Tensor compress_memories(const net::Network& network, const LayerParameters& parameters,
                             const at::Tensor& states, const at::Tensor& usage) {
  const std::int64_t count = states.size(1) / network.rate;
  if (network.pool == net::Pool::kMostUsed) return keep_most_used(states, usage, count);
  if (!network.learns_compression()) return compress(states, network.pool, network.rate);
  // The convolution is one matrix product over groups of states, with a group's elements in the
  // order of the weight's columns.
  const at::Tensor groups = convolution_groups(network, states).transpose(2, 3).flatten(2, 3);
  return kernels::project(groups, parameters.compression.weight.flatten(1, 2),
                          parameters.compression.bias);
}

at::Tensor newest_states(const at::Tensor& older, const at::Tensor& newer) {
  const std::int64_t length = older.size(1), entering = std::min(length, newer.size(1));
  return at::cat({older.narrow(1, entering, length - entering),
                  newer.narrow(1, newer.size(1) - entering, entering)},
                 1);
}

CompressiveOutput run_compressive_layer(LayerContext context, const at::Tensor& window,
                                        const at::Tensor& states, const net::Stage& input) {
  const std::int64_t segment = input.segment, length = input.compressed_memory;
  at::Tensor usage;
  if (context.network.pool == net::Pool::kMostUsed) context.usage = &usage;
  kernels::QueriesKeysValues projected;
  context.projected = &projected;
  CompressiveOutput output;
  output.states = run_layer(context, window, states);
  if (usage.defined()) usage = usage.narrow(1, length, segment);
  const bool keeps_gradient = context.step.through_memory;
  const at::Tensor before = keeps_gradient ? window : window.detach();
  const at::Tensor leaving = before.narrow(1, length, segment);
  const at::Tensor compressed =
      compress_memories(context.network, context.parameters, leaving, usage);
  if (context.step.training && compressed.requires_grad()) {
    projected.keys_values = projected.keys_values.narrow(1, length, segment);
    output.reconstruction = context.network.compression_loss == net::CompressionLoss::kAutoEncoding
                                ? auto_encoding(context, leaving, compressed)
                                : attention_reconstruction(context, projected, compressed);
  }
  const at::Tensor entering = keeps_gradient ? compressed : compressed.detach();
  output.compressed_memory = newest_states(before.narrow(1, 0, length), entering);
  return output;
}

}  // namespace ql::nn
