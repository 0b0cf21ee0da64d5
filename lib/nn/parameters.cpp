#include "nn/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "net/clusters.h"

namespace ql::nn {
namespace {

using Add = std::function<at::Tensor(std::string, at::IntArrayRef)>;

void add_vocabulary(const net::Network& network, Parameters& parameters, const Add& add) {
  const std::vector<net::Cluster> clusters = net::clusters(network);
  std::vector<net::Cluster> tables = clusters;
  if (net::shares_embedding(network)) {
    tables.resize(1);
    tables.front().end = network.vocab_size;
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    parameters.embeddings.push_back(
        add(fmt::format("word_emb.emb_layers.{}.weight", i), {tables[i].size(), tables[i].width}));
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    parameters.embedding_projections.push_back(
        tables[i].projected
            ? add(fmt::format("word_emb.emb_projs.{}", i), {network.d_model, tables[i].width})
            : at::Tensor());
  }
  if (clusters.size() > 1) {
    const auto tails = static_cast<std::int64_t>(clusters.size()) - 1;
    parameters.cluster_weight = add("crit.cluster_weight", {tails, clusters.front().width});
    parameters.cluster_bias = add("crit.cluster_bias", {tails});
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    parameters.output_biases.push_back(
        add(fmt::format("crit.out_layers.{}.bias", i), {tables[i].size()}));
  }
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    at::Tensor projection;
    if (clusters[i].projected) {
      projection =
          clusters[i].tied_projection
              ? parameters.embedding_projections[std::min(i, tables.size() - 1)]
              : add(fmt::format("crit.out_projs.{}", i), {network.d_model, clusters[i].width});
    }
    parameters.output_projections.push_back(projection);
  }
}

}  // namespace

Parameters make_parameters(const net::Network& network, const at::TensorOptions& options) {
  Parameters parameters;
  auto add = [&](std::string name, at::IntArrayRef shape) {
    at::Tensor tensor = at::zeros(shape, options);
    tensor.set_requires_grad(true);
    parameters.named.push_back({std::move(name), tensor});
    return tensor;
  };
  const std::int64_t d_heads = network.n_head * network.d_head;
  const std::vector<std::int64_t> bias_shape = {network.n_head, network.d_head};

  add_vocabulary(network, parameters, add);
  at::Tensor r_w_bias;
  at::Tensor r_r_bias;
  const bool projects_positions = network.encoding == net::Encoding::kTransformerXl;
  if (projects_positions && !network.untie_r) {
    r_w_bias = add("r_w_bias", bias_shape);
    r_r_bias = add("r_r_bias", bias_shape);
  }
  const auto add_layer = [&](std::size_t i, std::size_t scale) {
    const net::Network of_scale = network.of_scale(scale);
    const std::int64_t d_model = of_scale.d_model, d_inner = of_scale.d_inner;
    const std::string layer = fmt::format("layers.{}.", i);
    AttentionParameters attention;
    attention.qkv_net = add(layer + "dec_attn.qkv_net.weight", {3 * d_heads, d_model});
    if (projects_positions) {
      attention.r_net = add(layer + "dec_attn.r_net.weight", {d_heads, d_model});
    } else if (network.encoding == net::Encoding::kShaw) {
      attention.r_emb =
          add(layer + "dec_attn.r_emb", {network.clamp_len + 1, network.n_head, network.d_head});
    }
    attention.o_net = add(layer + "dec_attn.o_net.weight", {d_model, d_heads});
    attention.norm_weight = add(layer + "dec_attn.layer_norm.weight", {d_model});
    attention.norm_bias = add(layer + "dec_attn.layer_norm.bias", {d_model});
    if (projects_positions) {
      const bool own = network.untie_r;
      attention.r_w_bias = own ? add(layer + "dec_attn.r_w_bias", bias_shape) : r_w_bias;
      attention.r_r_bias = own ? add(layer + "dec_attn.r_r_bias", bias_shape) : r_r_bias;
    }
    FeedForwardParameters feed_forward;
    feed_forward.inner_weight = add(layer + "pos_ff.CoreNet.0.weight", {d_inner, d_model});
    feed_forward.inner_bias = add(layer + "pos_ff.CoreNet.0.bias", {d_inner});
    feed_forward.outer_weight = add(layer + "pos_ff.CoreNet.3.weight", {d_model, d_inner});
    feed_forward.outer_bias = add(layer + "pos_ff.CoreNet.3.bias", {d_model});
    feed_forward.norm_weight = add(layer + "pos_ff.layer_norm.weight", {d_model});
    feed_forward.norm_bias = add(layer + "pos_ff.layer_norm.bias", {d_model});
    CompressionParameters compression;
    if (network.learns_compression()) {
      compression.weight = add(layer + "compress.weight", {d_model, d_model, network.rate});
      compression.bias = add(layer + "compress.bias", {d_model});
    }
    if (network.learns_decoder()) {
      compression.decoder_weight =
          add(layer + "decompress.weight", {d_model, d_model, network.rate});
      compression.decoder_bias = add(layer + "decompress.bias", {d_model});
    }
    parameters.layers.push_back({attention, feed_forward, compression});
  };
  const std::size_t scales = network.scales.size();
  for (std::size_t scale = 0; scale <= scales; ++scale) {
    const std::int64_t layers = scale < scales ? network.scales[scale] : network.output_layers;
    for (std::int64_t i = 0; i < layers; ++i) add_layer(parameters.layers.size(), scale);
  }
  for (std::size_t scale = 0; scale < scales; ++scale) {
    const std::int64_t width = network.width_of(scale);
    const std::int64_t before = network.width_of(scale > 0 ? scale - 1 : 0);
    parameters.widenings.push_back(
        width != before ? add(fmt::format("scales.{}.widen.weight", scale), {width, before})
                        : at::Tensor());
    parameters.narrowings.push_back(
        network.maps_into_join(scale)
            ? add(fmt::format("scales.{}.narrow.weight", scale), {network.d_model, width})
            : at::Tensor());
  }
  return parameters;
}

}  // namespace ql::nn
