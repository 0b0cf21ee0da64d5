#include "nn/parameters.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace ql::nn {

Parameters make_parameters(const net::Network& network, const at::TensorOptions& options) {
  Parameters parameters;
  auto add = [&](std::string name, at::IntArrayRef shape) {
    at::Tensor tensor = at::zeros(shape, options);
    tensor.set_requires_grad(true);
    parameters.named.push_back({std::move(name), tensor});
    return tensor;
  };
  const std::int64_t d_model = network.d_model;
  const std::int64_t d_heads = network.n_head * network.d_head;
  const std::vector<std::int64_t> bias_shape = {network.n_head, network.d_head};

  parameters.embedding = add("word_emb.emb_layers.0.weight", {network.vocab_size, d_model});
  parameters.output_bias = add("crit.out_layers.0.bias", {network.vocab_size});
  at::Tensor r_w_bias;
  at::Tensor r_r_bias;
  if (!network.untie_r) {
    r_w_bias = add("r_w_bias", bias_shape);
    r_r_bias = add("r_r_bias", bias_shape);
  }
  for (std::int64_t i = 0; i < network.layers(); ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    AttentionParameters attention;
    attention.qkv_net = add(layer + "dec_attn.qkv_net.weight", {3 * d_heads, d_model});
    attention.r_net = add(layer + "dec_attn.r_net.weight", {d_heads, d_model});
    attention.o_net = add(layer + "dec_attn.o_net.weight", {d_model, d_heads});
    attention.norm_weight = add(layer + "dec_attn.layer_norm.weight", {d_model});
    attention.norm_bias = add(layer + "dec_attn.layer_norm.bias", {d_model});
    attention.r_w_bias = network.untie_r ? add(layer + "dec_attn.r_w_bias", bias_shape) : r_w_bias;
    attention.r_r_bias = network.untie_r ? add(layer + "dec_attn.r_r_bias", bias_shape) : r_r_bias;
    FeedForwardParameters feed_forward;
    feed_forward.inner_weight = add(layer + "pos_ff.CoreNet.0.weight", {network.d_inner, d_model});
    feed_forward.inner_bias = add(layer + "pos_ff.CoreNet.0.bias", {network.d_inner});
    feed_forward.outer_weight = add(layer + "pos_ff.CoreNet.3.weight", {d_model, network.d_inner});
    feed_forward.outer_bias = add(layer + "pos_ff.CoreNet.3.bias", {d_model});
    feed_forward.norm_weight = add(layer + "pos_ff.layer_norm.weight", {d_model});
    feed_forward.norm_bias = add(layer + "pos_ff.layer_norm.bias", {d_model});
    CompressionParameters compression;
    if (network.architecture == net::Architecture::kCompressive &&
        network.pool == net::Pool::kConvolution) {
      compression.weight = add(layer + "compress.weight", {d_model, d_model, network.rate});
      compression.bias = add(layer + "compress.bias", {d_model});
    }
    parameters.layers.push_back({attention, feed_forward, compression});
  }
  return parameters;
}

}  // namespace ql::nn
