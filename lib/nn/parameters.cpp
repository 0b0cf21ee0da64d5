// Allocates the parameters, names them, and draws their initial values.

#include "nn/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <functional>

#include "kernels/dropout_kernel.h"
#include "net/cost.h"

namespace ql::nn {

static std::int64_t padded_size(const at::Tensor& tensor) {
  constexpr std::int64_t kAlignment = FlatTensors::kAlignment;
  return (tensor.numel() + kAlignment - 1) / kAlignment * kAlignment;
}

static std::int64_t padded_size(const std::vector<NamedTensor>& tensors) {
  std::int64_t size = 0;
  for (const NamedTensor& named : tensors) size += padded_size(named.tensor);
  return size;
}

FlatTensors make_flat(std::vector<NamedTensor> tensors, at::Tensor all) {
  const at::NoGradGuard no_gradient;
  const bool copies = !all.defined();
  if (copies) {
    all = at::zeros({padded_size(tensors)}, tensors.front().tensor.options().requires_grad(false));
  }
  std::int64_t begin = 0;
  for (const NamedTensor& named : tensors) {
    const at::Tensor& tensor = named.tensor;
    const at::Tensor part = all.narrow(0, begin, tensor.numel()).view(tensor.sizes());
    if (copies) part.copy_(tensor);
    tensor.set_data(part);
    begin += padded_size(tensor);
  }
  return {std::move(all), std::move(tensors)};
}

at::Tensor part_of(const at::Tensor& all, const at::Tensor& part) {
  return all.narrow(0, part.storage_offset(), part.numel()).view(part.sizes());
}

using Add = std::function<at::Tensor(std::string, at::IntArrayRef)>;

static void add_vocabulary(const net::Network& network, Parameters& parameters, const Add& add) {
  const std::vector<net::Cluster> clusters = net::clusters(network);
  std::vector<net::Cluster> tables = clusters;
  if (net::shares_embedding(network)) {
    tables.resize(1);
    tables.front().end = network.vocab_size;
  }
  kernels::SoftmaxWeights& softmax = parameters.softmax;
  for (const net::Cluster& cluster : clusters) softmax.ends.push_back(cluster.end);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    softmax.weights.push_back(
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
    softmax.cluster_weight = add("crit.cluster_weight", {tails, clusters.front().width});
    softmax.cluster_bias = add("crit.cluster_bias", {tails});
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    softmax.biases.push_back(add(fmt::format("crit.out_layers.{}.bias", i), {tables[i].size()}));
  }
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    at::Tensor projection;
    if (clusters[i].projected) {
      projection =
          clusters[i].tied_projection
              ? parameters.embedding_projections[std::min(i, tables.size() - 1)]
              : add(fmt::format("crit.out_projs.{}", i), {network.d_model, clusters[i].width});
    }
    softmax.projections.push_back(projection);
  }
}

Parameters make_parameters(const net::Network& network, const at::TensorOptions& options,
                           const at::Tensor& all) {
  Parameters parameters;
  std::vector<NamedTensor> named;
  const auto add = [&](std::string name, at::IntArrayRef shape) {
    at::Tensor tensor = at::empty(shape, options).set_requires_grad(true);
    named.push_back({std::move(name), tensor});
    return tensor;
  };
  const std::int64_t d_heads = network.n_head * network.d_head;
  const std::vector<std::int64_t> bias_shape = {network.n_head, network.d_head};

  add_vocabulary(network, parameters, add);
  at::Tensor r_w_bias;
  at::Tensor r_r_bias;
  const net::EncodingRow& encoding = net::row_of(network.encoding);
  const bool has_biases = encoding.has(net::EncodingRow::kBiases);
  if (has_biases && !network.untie_r) {
    r_w_bias = add("r_w_bias", bias_shape);
    r_r_bias = add("r_r_bias", bias_shape);
  }
  const auto add_layer = [&](std::size_t i, std::size_t scale) {
    const net::Network of_scale = network.of_scale(scale);
    const std::int64_t d_model = of_scale.d_model, d_inner = of_scale.d_inner;
    const std::string layer = fmt::format("layers.{}.", i);
    AttentionParameters attention;
    attention.qkv_net = add(layer + "dec_attn.qkv_net.weight", {3 * d_heads, d_model});
    if (encoding.shape != nullptr) {
      attention.encoding = add(layer + "dec_attn." + encoding.weight, encoding.shape(of_scale));
    }
    attention.o_net = add(layer + "dec_attn.o_net.weight", {d_model, d_heads});
    attention.norm_weight = add(layer + "dec_attn.layer_norm.weight", {d_model});
    attention.norm_bias = add(layer + "dec_attn.layer_norm.bias", {d_model});
    if (has_biases) {
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
  const at::Tensor weights = all.defined() ? all : at::zeros({padded_size(named)}, options);
  parameters.flat = make_flat(std::move(named), weights);
  return parameters;
}

// This is the fourth word of Philox's counter for initial values. In dropout, that word is the
// upper half of the step number, which never becomes this large.
constexpr std::uint32_t kInitialisation = 0xFFFFFFFF;

static bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// A table of embeddings may be the largest tensor by far, so values are drawn in parts of this
// size.
constexpr std::int64_t kPart = std::int64_t{1} << 20;

// Draws the standard normal values of a parameter, beginning with index `first`, which is even. The
// Box-Muller method makes two of them from every pair of uniform values.
static at::Tensor normal_numbers(std::int64_t first, std::int64_t size, std::uint32_t parameter,
                                 std::uint64_t seed) {
  at::Tensor numbers = at::empty({size}, at::kDouble);
  auto* out = numbers.data_ptr<double>();
  at::parallel_for(0, (size + 1) / 2, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t pair = first / 2 + i;
      const kernels::PhiloxCounter words =
          kernels::philox({{static_cast<std::uint32_t>(pair),
                            static_cast<std::uint32_t>(pair >> 32), parameter, kInitialisation}},
                          seed);
      // The added half keeps the uniform value above 0, so the logarithm is finite.
      const double radius = std::sqrt(-2 * std::log((words.word[0] + 0.5) * 0x1p-32));
      const double angle = 2 * M_PI * (words.word[1] * 0x1p-32);
      out[2 * i] = radius * std::cos(angle);
      if (2 * i + 1 < size) out[2 * i + 1] = radius * std::sin(angle);
    }
  });
  return numbers;
}

void initialise(Parameters& parameters, const net::Network& network, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  std::uint32_t number = 0;
  for (NamedTensor& parameter : parameters.flat.named) {
    ++number;
    const bool is_norm = parameter.name.find("layer_norm") != std::string::npos;
    const bool is_attention_bias =
        ends_with(parameter.name, "r_w_bias") || ends_with(parameter.name, "r_r_bias");
    const bool is_projection = parameter.name.find("_projs.") != std::string::npos;
    if (parameter.name.rfind("scales.", 0) == 0) {
      // With an identity matrix, a state keeps its elements and gets zeros after them, or loses the
      // elements beyond the new width.
      at::eye_out(parameter.tensor, parameter.tensor.size(0), parameter.tensor.size(1));
      continue;
    }
    if (ends_with(parameter.name, "bias") && !is_attention_bias) {
      parameter.tensor.zero_();
      continue;
    }
    const at::Tensor all = parameter.tensor.view(-1);
    for (std::int64_t first = 0; first < all.numel(); first += kPart) {
      const std::int64_t count = std::min(kPart, all.numel() - first);
      all.narrow(0, first, count)
          .copy_(normal_numbers(first, count, number, seed)
                     .mul_(is_projection ? network.proj_init_std : network.init_std)
                     .add_(is_norm ? 1.0 : 0.0));
    }
  }
}

}  // namespace ql::nn
