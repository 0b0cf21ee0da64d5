#include "train/step_memory.h"

#include <algorithm>

#include "net/attention_cost.h"
#include "net/clusters.h"
#include "net/cost.h"

namespace ql::train {
namespace {

constexpr std::int64_t kFloat = 4;
// The softmax keeps the exponentials of a block of rows (kernels/softmax_blocks.cpp).
constexpr std::int64_t kBlockElements = std::int64_t{7} << 20;
constexpr std::int64_t kSmallestBlock = 128;
constexpr std::int64_t kPanelColumns = 2048;

struct LayerMemory {
  std::int64_t kept = 0, released = 0, passing = 0;  // of a row
  std::int64_t shared = 0;                           // of all rows together, released
};

std::int64_t whole_number(double count) {
  // More than any machine has is enough said.
  return static_cast<std::int64_t>(std::min(count, 0x1p50));
}

// `factor` is the size of a number that stands in a product: 2 in bfloat16. A factor is a copy
// then, and float32 numbers that nothing else reads are gone.
class LayerCount {
 public:
  LayerCount(const net::Network& network, const net::Stage& input, std::int64_t factor)
      : network_(network),
        input_(input),
        factor_(factor),
        rounded_(factor < kFloat ? factor : 0),
        d_model_(network.d_model),
        d_heads_(network.n_head * network.d_head),
        window_(input.window()),
        segment_(input.segment),
        keys_(input.segment_keys()) {}

  LayerMemory count() {
    count_window();
    count_attention();
    count_rest();
    if (input_.compressed_memory > 0 && network_.learns_compression()) count_compression();
    count_passing();
    return memory_;
  }

 private:
  // kernels/window_projection.cpp, or where finer states make the keys, the last run_layer() of
  // nn/layers.cpp.
  void count_window() {
    const bool has_memory = window_ > keys_;
    if (input_.keys_per_state > 1) {
      memory_.released += kFloat * (window_ * (network_.pre_lnorm ? 2 : 1) + segment_) * d_model_;
      return;
    }
    if (network_.pre_lnorm) {
      memory_.kept += (kFloat + rounded_) * window_ * d_model_ + kFloat * segment_;
      // The norm's weights are multiplied into the projection's. In bfloat16 all passes share that.
      if (rounded_ == 0) memory_.shared += kFloat * 3 * d_heads_ * d_model_;
    } else {
      // A window with a memory is the next step's memory, too, and counts there.
      memory_.kept += ((has_memory ? 0 : kFloat) + rounded_) * window_ * d_model_;
    }
    // The states of the segment in one piece. Without a memory they are so in the window.
    if (has_memory) memory_.kept += factor_ * segment_ * d_model_;
  }

  // Queries, keys, values and positions; scores and their dropout; the heads' sums.
  void count_attention() {
    const net::AttentionCost attention = net::attention_cost(network_, input_);
    const std::int64_t repeated = input_.keys_per_state > 1 ? segment_ : 0;
    memory_.released += kFloat * (2 * window_ + keys_ + repeated) * d_heads_;
    if (network_.encoding == net::Encoding::kTransformerXl) {
      memory_.shared += kFloat * window_ * d_heads_;
    }
    std::int64_t& scores =
        network_.attention == net::Attention::kSoftmax ? memory_.kept : memory_.released;
    scores += kFloat * whole_number(attention.kept_scores);
    if (network_.dropatt > 0) scores += whole_number(attention.kept_scores);
    memory_.released += kFloat * whole_number(attention.kept_features);
    (rounded_ > 0 ? memory_.kept : memory_.released) += factor_ * segment_ * d_heads_;
  }

  // kernels/residual.cpp and kernels/feed_forward.cpp. Norms have two statistics a row.
  void count_rest() {
    const std::int64_t norms = network_.pre_lnorm ? 1 : 2;
    memory_.released += norms * kFloat * segment_ * d_model_;
    memory_.kept += norms * 2 * kFloat * segment_;
    if (network_.dropout > 0) memory_.kept += 2 * segment_ * d_model_;
    memory_.kept += factor_ * segment_ * (d_model_ + network_.d_inner);
  }

  // nn/compression.cpp: the convolution, and the loss that teaches it.
  void count_compression() {
    const std::int64_t compressed = segment_ / network_.rate;
    std::int64_t numbers = compressed * d_model_;
    if (network_.pool == net::Pool::kDilatedConvolution) numbers += segment_ * d_model_;
    switch (network_.compression_loss) {
      case net::CompressionLoss::kAttentionReconstruction:
        numbers += 2 * (compressed + segment_) * d_heads_ +
                   network_.n_head * segment_ * ((compressed + 15) / 16 * 16);
        if (network_.pre_lnorm) numbers += compressed * d_model_;
        break;
      case net::CompressionLoss::kAutoEncoding:
        numbers += 2 * segment_ * d_model_;
        break;
    }
    memory_.released += kFloat * numbers;
  }

  // The gradients by the inner states, or by queries, keys and values, and those of the states
  // around them; each is rounded once more where it is a factor.
  void count_passing() {
    const std::int64_t forward = segment_ * (network_.d_inner + 3 * d_model_);
    const std::int64_t attention = (2 * window_ + 3 * keys_) * d_heads_ + segment_ * 3 * d_model_;
    memory_.passing = (kFloat + rounded_) * std::max(forward, attention);
    if (network_.pool == net::Pool::kMostUsed && input_.compressed_memory > 0) {
      // The usage of the keys is looked up by operations: scores by content and by position, these
      // padded, and shifted.
      memory_.passing = std::max(memory_.passing, 4 * kFloat * network_.n_head * keys_ * window_);
    }
  }

  const net::Network& network_;
  const net::Stage& input_;
  const std::int64_t factor_, rounded_, d_model_, d_heads_, window_, segment_, keys_;
  LayerMemory memory_;
};

// The softmax of `tokens` states: a block of each cluster, one after the other, and the states of
// the cluster's rows. Every target may be in the same tail.
std::int64_t softmax_bytes(const net::Network& network, std::int64_t tokens, std::int64_t factor,
                           int threads) {
  const std::int64_t d_model = network.d_model;
  std::int64_t most = 0;
  bool head = true;
  for (const net::Cluster& cluster : net::clusters(network)) {
    const std::int64_t columns =
        cluster.size() + (head ? static_cast<std::int64_t>(network.cutoffs.size()) : 0);
    const std::int64_t rows = std::min(tokens, std::max(kSmallestBlock, kBlockElements / columns));
    std::int64_t bytes = factor * rows * columns;
    if (factor < kFloat) bytes += kFloat * rows * std::min(columns, kPanelColumns);
    bytes += threads * kFloat * rows * cluster.width;  // scaled states
    // The gradient by the states, and of those that are projected for this cluster.
    bytes += kFloat * tokens * (d_model + (cluster.projected ? 2 * cluster.width : 0));
    if (!head) bytes += kFloat * tokens * d_model;  // the tail's rows, taken from all
    most = std::max(most, bytes);
    head = false;
  }
  return most;
}

}  // namespace

PassMemory pass_memory(const net::Network& network, const net::Geometry& geometry,
                       std::int64_t rows, machine::Precision precision, int threads) {
  const std::int64_t factor = precision == machine::Precision::kBfloat16 ? kFloat / 2 : kFloat;
  PassMemory pass;
  std::int64_t longest = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const net::Network of_stage = network.of_scale(stage.scale);
    const LayerMemory layer = LayerCount(of_stage, stage, factor).count();
    pass.kept += rows * layer.kept;
    pass.released += rows * layer.released + layer.shared;
    pass.passing = std::max(pass.passing, rows * layer.passing);
    longest = std::max(longest, stage.window());
  }
  const std::int64_t tokens = rows * geometry.lengths.segment;
  const std::int64_t states = kFloat * tokens * network.d_model;
  pass.kept += states;  // those that the softmax reads
  if (network.dropout > 0) {
    // The masks of embeddings and last states, and the position table without what was dropped.
    pass.released += 2 * states + kFloat * longest * network.d_model;
  }
  const auto scales = static_cast<std::int64_t>(geometry.outputs.size());
  pass.ending = std::max(geometry.accumulates() ? (scales + 1) * states : 0,
                         softmax_bytes(network, tokens, factor, threads));
  return pass;
}

// A memory is a view of the window that it was the newest part of, so it holds all of that.
std::int64_t memory_bytes(const net::Geometry& geometry) {
  std::int64_t numbers = 0;
  for (const net::Stage& stage : geometry.stages) {
    const std::int64_t window = stage.compressed_memory + stage.memory + stage.segment;
    numbers += ((stage.memory > 0 ? window : 0) + stage.compressed_memory) * stage.width;
  }
  return kFloat * numbers;
}

VocabularyMemory vocabulary_memory(const net::Network& network) {
  net::Network layers = network;
  layers.vocab_size = 0;
  layers.cutoffs.clear();
  VocabularyMemory memory;
  memory.gradients = kFloat * (net::cost(network, network.lengths).parameters -
                               net::cost(layers, network.lengths).parameters);
  for (const net::Cluster& cluster : net::clusters(network)) {
    const std::int64_t rows = net::shares_embedding(network) ? network.vocab_size : cluster.size();
    memory.table = std::max(memory.table, kFloat * rows * cluster.width);
  }
  return memory;
}

}  // namespace ql::train
