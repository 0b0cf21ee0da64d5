// Counts the bytes of layers, softmax, micro-batches and data, and chooses the number of
// accumulation steps.

#include "train/estimate.h"

#include "base/resources.h"
#include "eval/chunk_size.h"
#include "kernels/softmax_blocks.h"
#include "net/cost.h"
#include "train/gradients.h"

namespace ql::train {

namespace {

constexpr std::int64_t kFloat = 4;
struct LayerMemory {
  std::int64_t kept = 0, released = 0, passing = 0;  // bytes per row
  std::int64_t shared = 0;                           // of all rows together; counts as released
};

std::int64_t whole_number(double count) {
  // The cap is more memory than any machine has.
  return static_cast<std::int64_t>(std::min(count, 0x1p50));
}

// Counts the memory of a layer. `factor` is the size in bytes of an element of a matrix product's
// operand: 2 in bfloat16, else 4. A bfloat16 operand is a copy of float32 values, which are freed
// if nothing else reads them.
class LayerCount {
 public:
  LayerCount(const net::Network& network, const net::Stage& input, std::int64_t factor)
      : network_(network), input_(input), factor_(factor) {}

  LayerMemory count() {
    count_window();
    count_attention();
    count_rest();
    if (input_.compressed_memory > 0 && network_.learns_compression()) count_compression();
    count_passing();
    return memory_;
  }

 private:
  // Counts the tensors that a layer makes from its window: in kernels/projection.cpp or, if the
  // keys are states of a finer scale, in nn/layers.cpp (the run_layer() that takes `keys_values`).
  void count_window() {
    const bool has_memory = window_ > keys_;
    if (input_.keys_per_state > 1) {
      memory_.released += kFloat * (window_ * (network_.pre_lnorm ? 2 : 1) + segment_) * d_model_;
      return;
    }
    if (network_.pre_lnorm) {
      memory_.kept += (kFloat + rounded_) * window_ * d_model_ + kFloat * segment_;
      // This is the copy of the projection's weights that is multiplied by the norm's weights.
      memory_.shared += factor_ * 3 * d_heads_ * d_model_;
    } else {
      // If there is a memory, memory_bytes() counts the window, because the next step's memory is
      // a view of it. So the window is not counted here.
      memory_.kept += ((has_memory ? 0 : kFloat) + rounded_) * window_ * d_model_;
    }
    // If there is a memory, the segment's states are copied to be contiguous. Without a memory they
    // are the complete window, which is contiguous.
    if (has_memory) memory_.kept += factor_ * segment_ * d_model_;
  }

  // Adds the bytes of queries, keys and values, of position vectors, of scores and their dropout,
  // and of the heads' outputs.
  void count_attention() {
    const net::AttentionCost attention = net::attention_cost(network_, input_);
    const std::int64_t repeated = input_.keys_per_state > 1 ? segment_ : 0;
    memory_.released += kFloat * (2 * window_ + keys_ + repeated) * d_heads_;
    if (net::row_of(network_.encoding).has(net::EncodingRow::kVectors)) {
      memory_.shared += kFloat * window_ * d_heads_;
    }
    std::int64_t& scores =
        network_.attention == net::Attention::kSoftmax ? memory_.kept : memory_.released;
    scores += kFloat * whole_number(attention.kept_scores);
    if (network_.dropatt > 0) scores += whole_number(attention.kept_scores);
    memory_.released += kFloat * whole_number(attention.kept_features);
    (rounded_ > 0 ? memory_.kept : memory_.released) += factor_ * segment_ * d_heads_;
  }

  // Counts the norms and the tensors of kernels/feed_forward.cpp. Norms keep two statistics per
  // state.
  void count_rest() {
    const std::int64_t norms = network_.pre_lnorm ? 1 : 2;
    memory_.released += norms * kFloat * segment_ * d_model_;
    memory_.kept += norms * 2 * kFloat * segment_;
    if (network_.dropout > 0) memory_.kept += 2 * segment_ * d_model_;
    memory_.kept += factor_ * segment_ * (d_model_ + network_.d_inner);
  }

  // Counts the tensors of the convolution in nn/compression.cpp, and of the loss that trains it.
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

  // Counts the gradients that the layer's backward pass holds at once. The feed-forward layer holds
  // the gradient of the inner states, and attention holds the gradients of queries, keys and
  // values. Both also hold three gradients of the segment's states. The larger sum is taken. In
  // bfloat16, a gradient that is an operand also has a rounded copy.
  void count_passing() {
    const std::int64_t forward = segment_ * (network_.d_inner + 3 * d_model_);
    const std::int64_t attention = (2 * window_ + 3 * keys_) * d_heads_ + segment_ * 3 * d_model_;
    memory_.passing = (kFloat + rounded_) * std::max(forward, attention);
    if (network_.pool == net::Pool::kMostUsed && input_.compressed_memory > 0) {
      // attention_usage() computes how much each key is used. Four tensors are counted: scores by
      // content, scores by position, their sum, and the probabilities.
      memory_.passing = std::max(memory_.passing, 4 * kFloat * network_.n_head * keys_ * window_);
    }
  }

  const net::Network& network_;
  const net::Stage& input_;
  const std::int64_t factor_, rounded_ = factor_ < kFloat ? factor_ : 0;
  const std::int64_t d_model_ = network_.d_model, d_heads_ = network_.n_head * network_.d_head;
  const std::int64_t window_ = input_.window(), segment_ = input_.segment;
  const std::int64_t keys_ = input_.segment_keys();
  LayerMemory memory_;
};

// Returns the bytes of the softmax of `tokens` states. Its clusters are computed one after the
// other, so this is the maximum over the clusters. A cluster holds a block of logits and the states
// of its rows. The targets of all tokens may be in one tail (a cluster after the first), so every
// tail is counted with `tokens` rows.
std::int64_t softmax_bytes(const net::Network& network, std::int64_t tokens, std::int64_t factor,
                           int threads) {
  const std::int64_t d_model = network.d_model;
  std::int64_t most = 0;
  bool head = true;
  for (const net::Cluster& cluster : net::clusters(network)) {
    const std::int64_t columns =
        cluster.size() + (head ? static_cast<std::int64_t>(network.cutoffs.size()) : 0);
    const std::int64_t rows =
        std::min(tokens, std::max(kernels::kSmallestBlock, kernels::kBlockElements / columns));
    std::int64_t bytes = factor * rows * columns;
    if (factor < kFloat) bytes += kFloat * rows * std::min(columns, kernels::kPanelColumns);
    bytes += threads * kFloat * rows * cluster.width;  // scaled states
    // These are the gradient of the states and, if the cluster has a projection, the projected
    // states and their gradient.
    bytes += kFloat * tokens * (d_model + (cluster.projected ? 2 * cluster.width : 0));
    if (!head) bytes += kFloat * tokens * d_model;  // the states of the tail's rows, copied
    most = std::max(most, bytes);
    head = false;
  }
  return most;
}

// Holds the bytes of one accumulation step: the forward and the backward pass of some rows.
struct PassMemory {
  // The autograd nodes of lib/kernels keep their `saved_data` until the graph is freed, after the
  // backward pass.
  std::int64_t kept = 0;
  // Autograd nodes outside of lib/kernels release their tensors once the backward pass has used
  // them.
  std::int64_t released = 0;
  // At its end the forward pass needs these bytes in addition to `kept` and `released`: those of
  // the softmax or, if larger, of the states of all scales before their average.
  std::int64_t ending = 0;
  // A layer needs these bytes in addition to `kept` and `released`: for the gradients of its
  // backward pass or, if larger, for attention_usage(). This is the maximum over all layers.
  std::int64_t passing = 0;
};

// `threads` is the number of threads that compute the pass together.
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
  pass.kept += states;  // the states that the softmax reads
  if (network.dropout > 0) {
    // These are the dropout masks of embeddings and last states, and the position table after
    // dropout.
    pass.released += 2 * states + kFloat * longest * network.d_model;
  }
  const auto scales = static_cast<std::int64_t>(geometry.outputs.size());
  pass.ending = std::max(geometry.accumulates() ? (scales + 1) * states : 0,
                         softmax_bytes(network, tokens, factor, threads));
  return pass;
}

// Returns the bytes that the memories of a row take after a step. A memory is a view into that
// step's window, so it keeps the complete window allocated.
std::int64_t memory_bytes(const net::Geometry& geometry) {
  std::int64_t numbers = 0;
  for (const net::Stage& stage : geometry.stages) {
    const std::int64_t window = stage.compressed_memory + stage.memory + stage.segment;
    numbers += ((stage.memory > 0 ? window : 0) + stage.compressed_memory) * stage.width;
  }
  return kFloat * numbers;
}

struct VocabularyMemory {
  std::int64_t gradients = 0;  // gradients that the softmax computes in the forward pass
  std::int64_t table = 0;      // the largest gradient of an embedding table among them
};
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

// The first step loads this many bytes of LibTorch's code and tables, as measured.
constexpr std::int64_t kLibraries = std::int64_t{48} << 20;

// Returns the bytes of `running` accumulation steps that are computed in parallel, without their
// `gradients`, which the caller counts. `begin` is for the beginning of the backward pass: nothing
// is released yet, and only the gradients of the softmax exist. `end` is for its end: `released` is
// free, all gradients exist, and adding the embedding's gradient to the softmax's gradient of the
// same table takes the bytes of two more tables.
std::int64_t bytes_of_passes(const PassMemory& pass, const VocabularyMemory& vocabulary,
                             std::int64_t gradients, std::int64_t running) {
  const std::int64_t begin =
      pass.kept + pass.released + vocabulary.gradients + std::max(pass.ending, pass.passing);
  const std::int64_t end = pass.kept + gradients + std::max(pass.passing, 2 * vocabulary.table);
  // These bytes are freed, but not used again. A small gradient of the embedding is placed where
  // the softmax's exponentials were, so that later exponentials do not fit there. A large gradient
  // is mapped separately, so the memory of the exponentials stays unused.
  const std::int64_t lost = std::min(vocabulary.table, pass.ending);
  return running * (std::max(begin, end) + lost - gradients);
}

}  // namespace

MemoryEstimate estimate_memory(const net::Network& network, const TrainingConfig& config,
                               int threads, const EstimatedData& data) {
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  const std::vector<Slice> slices = split_rows(config.batch, config.slices, config.passes);
  const auto count = static_cast<std::int64_t>(slices.size());
  const std::int64_t running = std::min<std::int64_t>(count, threads);
  std::int64_t rows = 0;  // rows of the largest pass
  for (const Slice& slice : slices) {
    rows = std::max(rows, slice.front().count);
    rows = std::max(rows, slice.back().count);
  }
  const net::Cost cost = net::cost(network, network.lengths);
  const std::int64_t weights = cost.parameters * kFloat;
  MemoryEstimate estimate;
  estimate.process = resident_bytes() + kLibraries;
  estimate.data = config.batch * data.frame_bytes;
  estimate.parameters = 3 * weights;
  // The operands are rounded copies of the weights.
  if (config.precision == machine::Precision::kBfloat16) estimate.parameters += weights / 2;
  estimate.gradients = count * weights;
  // A step that diverges returns to the old memories, so old and new memories exist at once.
  estimate.memories = 2 * config.batch * memory_bytes(geometry);
  const PassMemory pass = pass_memory(network, geometry, rows, config.precision, threads);
  estimate.activations = bytes_of_passes(pass, vocabulary_memory(network), weights, running);
  if (slices.front().size() > 1 && rows > 1) {
    // Passes leave gaps in the allocator's arena that are too small for tensors of later passes.
    // The gaps take about the memory of one row, as measured.
    estimate.activations += running * (pass.kept + pass.released) / rows;
  }
  estimate.checkpoint = kFloat * config.batch * cost.memory_numbers;
  if (data.validation_tokens > 0) {
    const net::Lengths lengths = config.evaluation_lengths(network.lengths);
    estimate.validation = eval::chunk_bytes(network, net::make_geometry(network, lengths),
                                            data.validation_tokens, threads);
  }
  return estimate;
}

bool fits(const net::Network& network, const TrainingConfig& config, int threads,
          std::int64_t frame_bytes, std::int64_t available) {
  const MemoryEstimate estimate = estimate_memory(network, config, threads, {frame_bytes, 0});
  return estimate.total() - estimate.process <= available;
}

TrainingConfig with_most_passes(TrainingConfig config) {
  const std::int64_t slices = std::max<std::int64_t>(1, config.slices);
  config.passes = (config.batch - 1) / slices + 1;
  return config;
}

std::int64_t choose_passes(const net::Network& network, TrainingConfig config, int threads,
                           std::int64_t frame_bytes, std::int64_t available) {
  const auto fits_with = [&](std::int64_t passes) {
    config.passes = passes;
    return fits(network, config, threads, frame_bytes, available);
  };
  std::int64_t most = with_most_passes(config).passes;
  if (most == 1 || fits_with(1)) return 1;
  // More passes need less memory, so this is a binary search.
  for (std::int64_t fewest = 2; fewest < most;) {
    const std::int64_t middle = fewest + (most - fewest) / 2;
    if (fits_with(middle)) {
      most = middle;
    } else {
      fewest = middle + 1;
    }
  }
  return most;
}

}  // namespace ql::train
