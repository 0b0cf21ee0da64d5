// Counts the operations, parameters and memory of a network, and searches for the cutoffs of an
// adaptive softmax.

#include "net/cost.h"

#include <cmath>
#include <numeric>

namespace ql::net {

std::vector<Cluster> clusters(const Network& network) {
  std::vector<Cluster> all;
  std::int64_t begin = 0;
  std::int64_t width = network.embedding_width();
  const std::vector<bool> tied = network.resolved_tie_projs();
  for (std::size_t i = 0; i <= network.cutoffs.size(); ++i) {
    Cluster cluster;
    cluster.begin = begin;
    cluster.end = i < network.cutoffs.size() ? network.cutoffs[i] : network.vocab_size;
    cluster.width = width;
    cluster.projected =
        width != network.d_model || (!shares_embedding(network) && network.proj_same_dim);
    cluster.tied_projection = tied[i];
    all.push_back(cluster);
    begin = cluster.end;
    width /= network.div_val;
  }
  return all;
}

namespace {

constexpr std::size_t kMostCutoffs = 3;
// Cutoffs divide the vocabulary into clusters. Each id that is tried as a cutoff is larger than the
// previous one by a tenth, at least by 1. Such steps are small enough, because the time of the
// softmax changes little near the best cutoffs.
constexpr double kGrowth = 1.1;
constexpr double kGoodEnough = 1.1;
// A step reads all weights and writes all gradients once, for any cutoffs. For 1,024 tokens this
// takes as long as this number of columns for each id (0.27 with d_model 1,024). Measured with
// divisions as in softmax_bench: with d_model 256, 40,000 ids that follow Zipf's law and one
// thread, one column of one token takes 24 to 30 ns for 16 divisions into one to four clusters. A
// term for the rows of a tail or for the number of clusters does not make this range smaller.
// Without cutoffs a step takes 1138 ms, with 1,000 538 ms, with 1,000 and 8,000 296 ms, and with
// 1,000, 5,000 and 20,000 248 ms.
constexpr double kColumnsPerId = 0.11;

// Holds sums of counts: entry i is the sum over the ids below i.
using Sums = std::vector<double>;

Sums sums_of(const std::vector<std::int64_t>& counts) {
  Sums sums(counts.size() + 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sums[i + 1] = sums[i] + static_cast<double>(counts[i]);
  }
  return sums;
}

// Returns the multiplications that a cluster of ids takes for one token, divided by the width of
// the cluster's embeddings: one for each id, and d_model for a projection to this width. The head
// (the first cluster) also has one column for each other cluster.
double columns_of(const Network& network, const Cluster& cluster) {
  return static_cast<double>(cluster.size()) +
         (cluster.begin == 0 ? static_cast<double>(network.cutoffs.size()) : 0) +
         (cluster.projected ? static_cast<double>(network.d_model) : 0);
}

double columns(const Network& network, const Sums& sums) {
  double total = kColumnsPerId * static_cast<double>(network.vocab_size);
  for (const Cluster& cluster : clusters(network)) {
    const double share = (sums[static_cast<std::size_t>(cluster.end)] -
                          sums[static_cast<std::size_t>(cluster.begin)]) /
                         sums.back();
    total += (cluster.begin == 0 ? 1 : share) * columns_of(network, cluster);
  }
  return total;
}

std::vector<std::int64_t> candidates(std::int64_t vocab_size) {
  std::vector<std::int64_t> values;
  std::int64_t value = 1;
  while (value < vocab_size) {
    values.push_back(value);
    const double grown = std::floor(static_cast<double>(value) * kGrowth);
    value = std::max(value + 1, static_cast<std::int64_t>(grown));
  }
  return values;
}

struct Best {
  std::vector<std::int64_t> cutoffs;
  double columns = std::numeric_limits<double>::infinity();
};

// Tries all ways to add `more` cutoffs to network.cutoffs, taken from `values` at index `first` and
// later. Keeps the cheapest cutoffs in `best`.
void search(Network& network, const Sums& sums, const std::vector<std::int64_t>& values,
            std::size_t first, std::size_t more, Best& best) {
  if (more == 0) {
    const double found = columns(network, sums);
    if (found < best.columns) best = {network.cutoffs, found};
    return;
  }
  for (std::size_t i = first; i + more <= values.size(); ++i) {
    network.cutoffs.push_back(values[i]);
    search(network, sums, values, i + 1, more - 1, best);
    network.cutoffs.pop_back();
  }
}

}  // namespace

double softmax_columns(const Network& network, const std::vector<std::int64_t>& counts) {
  return columns(network, sums_of(counts));
}

// Divides the vocabulary in the proportions of the public Transformer-XL. A tiny vocabulary, or a
// narrow embedding, has room for fewer clusters.
static std::vector<std::int64_t> proportional_cutoffs(const Network& network) {
  constexpr double kWords = 267735;
  std::vector<std::int64_t> cutoffs;
  std::int64_t width = network.embedding_width(), previous = 0;
  for (const double cutoff : {20000.0, 40000.0, 200000.0}) {
    width /= network.div_val;
    const std::int64_t scaled =
        std::llround(static_cast<double>(network.vocab_size) * cutoff / kWords);
    if (width < 1) break;
    if (scaled > previous && scaled < network.vocab_size) cutoffs.push_back(previous = scaled);
  }
  return cutoffs;
}

std::vector<std::int64_t> propose_cutoffs(const Network& network,
                                          const std::vector<std::int64_t>& counts) {
  if (!shares_embedding(network)) return proportional_cutoffs(network);
  const Sums sums = sums_of(counts);
  const std::vector<std::int64_t> values = candidates(network.vocab_size);
  std::vector<Best> best;
  Network tried = network;
  for (std::size_t number = 0; number <= kMostCutoffs; ++number) {
    tried.cutoffs.clear();
    tried.tie_projs.clear();
    best.emplace_back();
    search(tried, sums, values, 0, number, best.back());
  }
  double least = best.front().columns;
  for (const Best& one : best) least = std::min(least, one.columns);
  for (const Best& one : best) {
    if (one.columns <= kGoodEnough * least) return one.cutoffs;
  }
  return {};
}

// The costs follow from the geometry and the kind of attention.

// Returns the sum of floor(i / divisor) over 0 <= i < count.
static double sum_of_quotients(std::int64_t count, std::int64_t divisor) {
  const std::int64_t quotient = count / divisor, rest = count % divisor;
  const auto runs = static_cast<double>(quotient);
  return static_cast<double>(divisor) * runs * (runs - 1) / 2 + runs * static_cast<double>(rest);
}

// Returns the number of pairs of a query and a key that the query sees, for all queries of a
// segment, averaged over the heads. With query_only_pooling a query is pooled from keys_per_state
// states, and each of these is a key. Attention computes a copy of the query at each of these keys.
// All copies count, although only the result of the last copy is used.
static double seen_keys(const Network& network, const Stage& input) {
  const auto segment = static_cast<double>(input.segment_keys());
  const std::int64_t memory = input.memory + input.compressed_memory;
  if (input.span == 0) return segment * static_cast<double>(memory) + segment * (segment + 1) / 2;
  std::vector<std::int64_t> dilations = network.attention_dilation;
  dilations.resize(std::max<std::size_t>(1, dilations.size()), 1);
  double keys = 0;
  for (const std::int64_t dilation : dilations) {
    // Query i reaches (memory + i) / dilation + 1 keys; queries from index `full` on see exactly
    // `span` keys.
    const std::int64_t full =
        std::clamp<std::int64_t>((input.span - 1) * dilation - memory, 0, input.segment);
    keys += sum_of_quotients(memory + full, dilation) - sum_of_quotients(memory, dilation) +
            static_cast<double>(full);
    keys += static_cast<double>(input.segment - full) * static_cast<double>(input.span);
  }
  return keys / static_cast<double>(dilations.size());
}

// Counts content scores, position scores if the encoding has vectors, and weighted values. ATen's
// operations hold the scores of all pairs.
static AttentionCost softmax_cost(const Network& network, const Stage& input) {
  const double factors = row_of(network.encoding).has(EncodingRow::kVectors) ? 3 : 2;
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  const auto queries = static_cast<double>(network.n_head * input.segment_keys());
  return {factors * seen_keys(network, input) * d_heads,
          queries * static_cast<double>(input.window())};
}

// The products of the keys and values before a block are summed in one matrix, which the queries of
// the block read. So scores exist only within blocks, for any length of the window.
//
// Evaluation holds the scores, two tensors for the keys' feature map, and a copy of the values.
static AttentionCost linear_cost(const Network& network, const Stage& input) {
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  const std::int64_t window = input.window(), segment = input.segment_keys();
  const double scores = static_cast<double>(network.n_head * segment) *
                        static_cast<double>(std::min(segment, kLinearBlock));
  return {static_cast<double>((window + segment) * network.d_head) * d_heads,
          scores + 3 * static_cast<double>(window) * d_heads};
}

AttentionCost attention_cost(const Network& network, const Stage& input) {
  switch (network.attention) {
    case Attention::kSoftmax:
      return softmax_cost(network, input);
    case Attention::kLinear:
      return linear_cost(network, input);
  }
  throw std::logic_error("not an attention");
}

// Returns the number of parameters of the position encoding in one layer, except the biases u and
// v.
static std::int64_t parameters_of_encoding(const Network& network) {
  const EncodingRow& encoding = row_of(network.encoding);
  if (encoding.shape == nullptr) return 0;
  const std::vector<std::int64_t> shape = encoding.shape(network);
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

static std::int64_t parameters_of_layer(const Network& network) {
  const std::int64_t d_heads = network.n_head * network.d_head;
  const std::int64_t attention =
      4 * d_heads * network.d_model + parameters_of_encoding(network);  // 4 maps: q, k, v, output
  const std::int64_t feed_forward =
      2 * network.d_inner * network.d_model + network.d_inner + network.d_model;
  const std::int64_t layer_norms = std::int64_t{4} * network.d_model;  // two norms, weight and bias
  const std::int64_t convolution =
      network.rate * network.d_model * network.d_model + network.d_model;
  const std::int64_t convolutions =
      (network.learns_compression() ? 1 : 0) + (network.learns_decoder() ? 1 : 0);
  return attention + feed_forward + layer_norms + convolutions * convolution;
}

// Counts the parameters of all layers, of maps between scales of different widths, and of learned
// maps before the scales are averaged.
static std::int64_t parameters_of_scales(const Network& network) {
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

// Counts the parameters of embeddings, projections, biases, and the first cluster's columns for the
// other clusters.
static std::int64_t parameters_of_vocabulary(const Network& network) {
  std::int64_t count = 0;
  std::int64_t projections = 0;  // of embedding and softmax; shared ones count once
  for (const Cluster& cluster : clusters(network)) {
    const bool head = cluster.begin == 0;
    count += cluster.size() * (cluster.width + 1);
    const std::int64_t projection = cluster.projected ? network.d_model * cluster.width : 0;
    const bool own_table = head || !shares_embedding(network);
    projections += (own_table ? projection : 0) + (cluster.tied_projection ? 0 : projection);
    // The first cluster has a column (a weight vector and a bias) for each other cluster.
    count += head ? 0 : network.embedding_width() + 1;
  }
  return count + projections;
}

static std::int64_t count_parameters(const Network& network) {
  const std::int64_t biases_u_v =
      row_of(network.encoding).has(EncodingRow::kBiases) ? 2 * network.n_head * network.d_head : 0;
  return (network.vocab_size > 0 ? parameters_of_vocabulary(network) : 0) +
         parameters_of_scales(network) + (network.untie_r ? network.layers() : 1) * biases_u_v;
}

// Counts the multiplications of the embedding's projection, of the softmax and of its projection
// for one token. An adaptive input or softmax counts only its first cluster, because the tokens
// decide which other clusters are computed.
static double products_of_vocabulary(const Network& network) {
  if (network.vocab_size == 0) return 0;
  const Cluster head = clusters(network).front();
  const double embedding = head.projected ? static_cast<double>(network.d_model) : 0;
  return static_cast<double>(head.width) * (embedding + columns_of(network, head));
}

// Counts the multiplications of two maps. One maps states of the previous scale to another width.
// The other one maps a scale's outputs before the scales are averaged.
static double products_of_widths(const Network& network, const Stage& stage) {
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

// Returns the number of states that enter a layer's memory in a step without having had keys and
// values in a segment. These are compressed states, and pooled states of which a segment uses the
// queries only. Most-used compression keeps states that had keys and values.
static std::int64_t states_without_keys(const Network& network, const Stage& input) {
  const bool makes_states = network.pool != Pool::kMostUsed;
  const std::int64_t compressed =
      makes_states ? std::min(input.segment / network.rate, input.compressed_memory) : 0;
  const std::int64_t pooled =
      input.keys_per_state > 1 ? std::min(input.new_states, input.memory) : 0;
  return compressed + pooled;
}

Cost cost(const Network& network, const Lengths& lengths) {
  const Geometry geometry = make_geometry(network, lengths);
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  Cost cost;
  cost.parameters = count_parameters(network);
  // `products` are the multiplications of a step's forward pass that evaluation and training share,
  // without embedding and softmax. `of_entering` are further ones of evaluation. `more` are those
  // of a training step beyond three times `products`.
  double products = 0, of_entering = 0, more = 0;
  for (const Stage& stage : geometry.stages) {
    const Network of_stage = network.of_scale(stage.scale);
    const auto d_model = static_cast<double>(of_stage.d_model);
    const std::int64_t memory = stage.memory + stage.compressed_memory;
    cost.memory_states += memory;
    cost.memory_numbers += memory * of_stage.d_model;
    const auto segment = static_cast<double>(stage.segment);
    products += products_of_widths(network, stage);
    if (!stage.feeds_layer()) continue;
    // The convolution makes one state from `rate` states, and each result takes `rate` products
    // with a [d_model, d_model] matrix. Without a compressed memory nothing is compressed.
    const bool compresses = network.learns_compression() && stage.compressed_memory > 0;
    const double convolution = compresses ? segment * d_model * d_model : 0;
    const double feed_forward = 2 * segment * d_model * static_cast<double>(of_stage.d_inner);
    const double queries_and_output = 2 * segment * d_model * d_heads;
    const double keys_and_values =
        2 * static_cast<double>(stage.segment_keys()) * d_model * d_heads;
    products += queries_and_output + keys_and_values + attention_cost(network, stage).products +
                feed_forward + convolution;
    // Training counts these keys and values with those of the memory.
    of_entering += 2 * static_cast<double>(states_without_keys(network, stage)) * d_model * d_heads;
    // Keys and values of the memory are recomputed, and the gradients of their weights take as many
    // multiplications again. Three times `products` includes gradients of the convolution's inputs.
    // These inputs are memories, which have no gradients, so one `convolution` is subtracted.
    more += 4 * static_cast<double>(memory) * d_model * d_heads - convolution;
  }
  const auto segment = static_cast<double>(lengths.segment);
  const double shared = 2 * (products / segment + products_of_vocabulary(network));
  cost.forward_flops_per_token = shared + 2 * of_entering / segment;
  cost.training_flops_per_token = 3 * shared + 2 * more / segment;
  return cost;
}

}  // namespace ql::net
