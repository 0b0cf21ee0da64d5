#include "net/cost.h"

#include <vector>

#include "net/attention_cost.h"
#include "net/clusters.h"

namespace ql::net {
namespace {

// Counts what tells positions apart in one layer, but for u and v.
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

// The layers of all scales and the output block, and the maps between states of different widths.
std::int64_t parameters_of_scales(const Network& network) {
  std::int64_t count = network.output_layers * parameters_of_layer(network);
  for (std::size_t scale = 0; scale < network.scales.size(); ++scale) {
    const std::int64_t width = network.width_of(scale);
    count += network.scales[scale] * parameters_of_layer(network.of_scale(scale));
    if (scale > 0 && width != network.width_of(scale - 1)) {
      count += width * network.width_of(scale - 1);
    }
    if (network.maps_into_join(scale)) count += width * network.d_model;
  }
  return count;
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
         parameters_of_scales(network) + (network.untie_r ? network.layers() : 1) * biases_u_v;
}

// Counts the softmax over one state: all ids, or with cutoffs the head alone, because the data
// decide which tails a target needs.
double products_of_head(const Network& network) {
  if (network.vocab_size == 0) return 0;
  const std::vector<Cluster> all = clusters(network);
  const auto width = static_cast<double>(all.front().width);
  const double projection =
      all.front().projected ? static_cast<double>(network.d_model) * width : 0;
  return projection + width * static_cast<double>(all.front().size() + network.cutoffs.size());
}

// The maps to another width: of what was pooled, and of the states that are joined.
double products_of_widths(const Network& network, const Stage& stage) {
  if (stage.scale >= network.scales.size()) return 0;
  const auto width = static_cast<double>(stage.width);
  double products = 0;
  if (stage.source == Stage::Source::kCompressed) {
    const std::int64_t before = network.width_of(stage.scale - 1);
    const std::int64_t states =
        stage.segment + (stage.keys_per_state > 1 ? stage.segment_keys() : 0);
    if (before != stage.width) {
      products += static_cast<double>(states) * static_cast<double>(before) * width;
    }
  }
  if (!stage.feeds_layer() && network.maps_into_join(stage.scale)) {
    const std::int64_t states = stage.segment + (stage.memory > 0 ? 1 : 0);
    products += static_cast<double>(states) * width * static_cast<double>(network.d_model);
  }
  return products;
}

}  // namespace

Cost cost(const Network& network, const Lengths& lengths) {
  const Geometry geometry = make_geometry(network, lengths);
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  Cost cost;
  cost.parameters = count_parameters(network);
  // Multiplications of a step, in all layers; those that a training step has beyond three times as
  // many.
  double products = 0, more = 0;
  for (const Stage& stage : geometry.stages) {
    const Network of_stage = network.of_scale(stage.scale);
    const auto d_model = static_cast<double>(of_stage.d_model);
    const std::int64_t memory = stage.memory + stage.compressed_memory;
    cost.memory_states += memory;
    cost.memory_numbers += memory * of_stage.d_model;
    const auto segment = static_cast<double>(stage.segment);
    products += products_of_widths(network, stage);
    if (!stage.feeds_layer()) continue;
    // One of `rate` states comes out of the convolution, and each takes `rate` products.
    const double convolution = network.learns_compression() ? segment * d_model * d_model : 0;
    const double feed_forward = 2 * segment * d_model * static_cast<double>(of_stage.d_inner);
    const double queries_and_output = 2 * segment * d_model * d_heads;
    const double keys_and_values =
        2 * static_cast<double>(stage.segment_keys()) * d_model * d_heads;
    products += queries_and_output + keys_and_values + attention_cost(network, stage).products +
                feed_forward + convolution;
    // Keys and values of the memory, and the gradient of their weights; a convolution's inputs,
    // which are memories, have none.
    more += 4 * static_cast<double>(memory) * d_model * d_heads - convolution;
  }
  const auto segment = static_cast<double>(lengths.segment);
  cost.forward_flops_per_token = 2 * (products / segment + products_of_head(network));
  cost.training_flops_per_token = 3 * cost.forward_flops_per_token + 2 * more / segment;
  return cost;
}

}  // namespace ql::net
