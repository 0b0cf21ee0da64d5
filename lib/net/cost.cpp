#include "net/cost.h"

#include <algorithm>
#include <vector>

#include "net/clusters.h"

namespace ql::net {
namespace {

// Of what tells positions apart in one layer, but for u and v.
std::int64_t parameters_of_encoding(const Network& network) {
  const std::int64_t d_heads = network.n_head * network.d_head;
  switch (network.encoding) {
    case Encoding::kTransformerXl:
      return d_heads * network.d_model;
    case Encoding::kShaw:
      return (network.clamp_len + 1) * d_heads;
    case Encoding::kAbsolute:
      break;
  }
  return 0;
}

std::int64_t parameters_of_layer(const Network& network) {
  const std::int64_t d_heads = network.n_head * network.d_head;
  const std::int64_t attention =
      4 * d_heads * network.d_model + parameters_of_encoding(network);  // queries, keys, values, o
  const std::int64_t feed_forward =
      2 * network.d_inner * network.d_model + network.d_inner + network.d_model;
  const std::int64_t layer_norms = std::int64_t{4} * network.d_model;  // two norms, weight and bias
  const std::int64_t convolution =
      network.rate * network.d_model * network.d_model + network.d_model;
  const std::int64_t convolutions =
      (network.learns_compression() ? 1 : 0) + (network.learns_decoder() ? 1 : 0);
  return attention + feed_forward + layer_norms + convolutions * convolution;
}

// Embeddings, biases and projections of all clusters.
std::int64_t parameters_of_vocabulary(const Network& network) {
  std::int64_t count = 0;
  std::int64_t projections = 0;  // that the softmax does not share
  std::int64_t index = 0;
  for (const Cluster& cluster : clusters(network)) {
    count += cluster.size() * (cluster.width + 1);
    const std::int64_t projection = cluster.projected ? network.d_model * cluster.width : 0;
    const bool own_table = index == 0 || !shares_embedding(network);
    projections += (own_table ? projection : 0) + (cluster.tied_projection ? 0 : projection);
    count += index > 0 ? network.embedding_width() + 1 : 0;  // its column of the head
    ++index;
  }
  return count + projections;
}

std::int64_t count_parameters(const Network& network) {
  const std::int64_t biases_u_v =
      network.encoding == Encoding::kTransformerXl ? 2 * network.n_head * network.d_head : 0;
  return (network.vocab_size > 0 ? parameters_of_vocabulary(network) : 0) +
         network.layers() * parameters_of_layer(network) +
         (network.untie_r ? network.layers() : 1) * biases_u_v;
}

// Of each head, or one for all.
std::vector<std::int64_t> dilations_of(const AttentionReach& reach) {
  return reach.dilations.empty() ? std::vector<std::int64_t>{1} : reach.dilations;
}

// The sum of i / divisor, rounded down, over 0 <= i < count.
double sum_of_quotients(std::int64_t count, std::int64_t divisor) {
  const std::int64_t quotient = count / divisor, rest = count % divisor;
  const auto whole = static_cast<double>(quotient);
  return static_cast<double>(divisor) * whole * (whole - 1) / 2 + whole * static_cast<double>(rest);
}

// Keys that the queries of a segment see together, on the average over the heads.
double seen_keys(const ScaleGeometry& scale, std::int64_t compressed_memory) {
  const auto segment = static_cast<double>(scale.segment);
  const std::int64_t memory = scale.memory + compressed_memory;
  const AttentionReach& reach = scale.reach;
  if (!reach.limited()) {
    return segment * static_cast<double>(memory) + segment * (segment + 1) / 2;
  }
  double keys = 0;
  for (const std::int64_t dilation : dilations_of(reach)) {
    // Query i reaches (memory + i) / dilation + 1 keys, from `full` on no more than the span.
    const std::int64_t full =
        std::clamp<std::int64_t>((reach.span - 1) * dilation - memory, 0, scale.segment);
    keys += sum_of_quotients(memory + full, dilation) - sum_of_quotients(memory, dilation) +
            static_cast<double>(full);
    keys += static_cast<double>(scale.segment - full) * static_cast<double>(reach.span);
  }
  return keys / static_cast<double>(dilations_of(reach).size());
}

// Of weighing the values of one layer in one step.
double products_of_attention(const Network& network, const ScaleGeometry& scale,
                             std::int64_t compressed_memory) {
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  if (network.attention == Attention::kLinear) {
    // Every state of the window adds its key and value to a matrix, every query reads it.
    const std::int64_t states = scale.window() + compressed_memory + scale.segment;
    return static_cast<double>(states * network.d_head) * d_heads;
  }
  const double factors = network.encoding == Encoding::kAbsolute ? 2 : 3;
  return factors * seen_keys(scale, compressed_memory) * d_heads;
}

// Products of one layer in one step: the number of multiplications.
double products_of_layer(const Network& network, const ScaleGeometry& scale,
                         std::int64_t compressed_memory) {
  const auto segment = static_cast<double>(scale.segment);
  const auto d_model = static_cast<double>(network.d_model);
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  const double projections = 4 * segment * d_model * d_heads;
  const double attention = products_of_attention(network, scale, compressed_memory);
  const double feed_forward = 2 * segment * d_model * static_cast<double>(network.d_inner);
  // One of `rate` states comes out of the convolution, and each takes `rate` products.
  const double convolution = network.learns_compression() ? segment * d_model * d_model : 0;
  return projections + attention + feed_forward + convolution;
}

// Of the softmax over one state: all ids, or with cutoffs the head alone, for which tails a target
// needs depends on the data.
double products_of_head(const Network& network) {
  if (network.vocab_size == 0) {
    return 0;
  }
  const std::vector<Cluster> all = clusters(network);
  const auto width = static_cast<double>(all.front().width);
  const double projection =
      all.front().projected ? static_cast<double>(network.d_model) * width : 0;
  return projection + width * static_cast<double>(all.front().size() + network.cutoffs.size());
}

// Of keys and values that one layer makes of its memory in a step of training.
double products_of_memory(const Network& network, const ScaleGeometry& scale,
                          std::int64_t compressed_memory) {
  return 2 * static_cast<double>(scale.memory + compressed_memory) *
         static_cast<double>(network.d_model) *
         static_cast<double>(network.n_head * network.d_head);
}

double count_training_flops_per_token(const Network& network, const Geometry& geometry,
                                      double forward_flops_per_token) {
  double memories = 0, convolutions = 0;
  const auto add = [&](const ScaleGeometry& scale) {
    const auto layers = static_cast<double>(scale.layers);
    memories += layers * products_of_memory(network, scale, geometry.compressed_memory);
    if (network.learns_compression()) {
      convolutions += layers * static_cast<double>(scale.segment) *
                      static_cast<double>(network.d_model) * static_cast<double>(network.d_model);
    }
  };
  for (const ScaleGeometry& scale : geometry.scales) {
    add(scale);
  }
  add(geometry.output);
  const auto segment = static_cast<double>(geometry.lengths.segment);
  return 3 * forward_flops_per_token + 2 * (2 * memories - convolutions) / segment;
}

double count_flops_per_token(const Network& network, const Geometry& geometry) {
  double products = 0;
  const auto add = [&](const ScaleGeometry& scale) {
    products += static_cast<double>(scale.layers) *
                products_of_layer(network, scale, geometry.compressed_memory);
  };
  for (const ScaleGeometry& scale : geometry.scales) {
    add(scale);
  }
  add(geometry.output);
  return 2 * (products / static_cast<double>(geometry.lengths.segment) + products_of_head(network));
}

std::int64_t count_memory_states(const Geometry& geometry) {
  std::int64_t states = geometry.output.layers * geometry.output.memory;
  for (const ScaleGeometry& scale : geometry.scales) {
    states += scale.layers * (scale.memory + geometry.compressed_memory) + scale.output_memory;
  }
  return states;
}

}  // namespace

double held_scores(const Network& network, std::int64_t segment, std::int64_t window) {
  const bool linear = network.attention == Attention::kLinear;
  const std::int64_t keys = linear ? std::min(segment, kLinearBlock) : window;
  return static_cast<double>(network.n_head * segment) * static_cast<double>(keys);
}

Cost cost(const Network& network, const Lengths& lengths) {
  const Geometry geometry = make_geometry(network, lengths);
  const double forward = count_flops_per_token(network, geometry);
  return {count_parameters(network), forward,
          count_training_flops_per_token(network, geometry, forward),
          count_memory_states(geometry)};
}

}  // namespace ql::net
