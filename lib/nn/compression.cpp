#include "nn/compression.h"

#include <cmath>

#include "nn/pooling.h"

namespace ql::nn {
namespace {

// What keys and values, or queries, are made from, with the layer's parameters held fixed.
LayerParameters hold(const LayerParameters& parameters) {
  LayerParameters held;
  held.attention.qkv_net = parameters.attention.qkv_net.detach();
  held.attention.norm_weight = parameters.attention.norm_weight.detach();
  held.attention.norm_bias = parameters.attention.norm_bias.detach();
  return held;
}

}  // namespace

at::Tensor compress_memories(const net::Network& network, const LayerParameters& parameters,
                             const at::Tensor& states) {
  const std::int64_t rate = network.rate;
  if (network.pool != net::Pool::kConvolution) {
    return compress(states, network.pool, rate, states.size(1) / rate);
  }
  // One product over groups of states; the weight's columns in the order of a group's numbers.
  const at::Tensor groups = states.unflatten(1, {states.size(1) / rate, rate}).flatten(2, 3);
  const at::Tensor weight = parameters.compression.weight.transpose(1, 2).flatten(1, 2);
  return at::linear(groups, weight, parameters.compression.bias);
}

at::Tensor reconstruction_loss(const LayerContext& context, const at::Tensor& recent,
                               const at::Tensor& states, const at::Tensor& compressed) {
  const LayerParameters held = hold(context.parameters);
  const LayerContext fixed{context.network, held, context.step, context.layer};
  const std::int64_t heads = context.network.n_head, d_head = context.network.d_head;
  const std::int64_t d_heads = heads * d_head;
  const at::Tensor& qkv = held.attention.qkv_net;
  // [batch, heads, length, d_head], `part` 0 queries, 1 keys, 2 values.
  const auto project = [&](const at::Tensor& input, std::int64_t part) {
    return at::linear(attention_states(fixed, input), qkv.narrow(0, part * d_heads, d_heads))
        .unflatten(2, {heads, d_head})
        .transpose(1, 2);
  };
  const at::Tensor queries = project(recent.detach(), 0) / std::sqrt(static_cast<double>(d_head));
  const auto attend = [&](const at::Tensor& memory) {
    const at::Tensor scores = at::matmul(queries, project(memory, 1).transpose(2, 3));
    return at::matmul(at::softmax(scores, -1), project(memory, 2));
  };
  return (attend(compressed) - attend(states)).square().mean();
}

}  // namespace ql::nn
