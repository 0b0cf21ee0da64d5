#include "train/estimate.h"

#include <algorithm>

#include "base/resources.h"
#include "eval/chunk_size.h"
#include "net/attention_cost.h"
#include "net/cost.h"
#include "train/slices.h"

namespace ql::train {
namespace {

constexpr std::int64_t kFloat = 4;
// The first step loads so much of LibTorch's code and tables. Measured.
constexpr std::int64_t kLibraries = std::int64_t{40} << 20;
// Logits of one block of rows (kernels/softmax_blocks.cpp), which has at least some rows.
constexpr std::int64_t kSoftmaxBlock = std::int64_t{28} << 20;
constexpr std::int64_t kSoftmaxRows = 128;

// The numbers that one layer keeps for the backward pass, for one row of the batch. The window has
// its states (also normalized), keys and values. The segment has queries, weighted sums, the
// residual's sum and norm, and inner states. Then come the probabilities, and a byte for every
// element that dropout may have dropped.
std::int64_t kept_numbers(const net::Network& network, const net::Stage& input) {
  const std::int64_t d_heads = network.n_head * network.d_head, d_model = network.d_model;
  const net::AttentionCost attention = net::attention_cost(network, input);
  // More than any machine has is enough said.
  const auto scores = static_cast<std::int64_t>(std::min(attention.kept_scores, 0x1p50));
  return input.window() * (d_model + 2 * d_heads) + input.segment_keys() * 2 * d_heads +
         input.segment * ((network.pre_lnorm ? 4 : 5) * d_model + network.d_inner) + scores +
         scores / kFloat + static_cast<std::int64_t>(attention.kept_features);
}

// The numbers that a layer needs besides while it goes backward.
std::int64_t passing_numbers(const net::Network& network, const net::Stage& input) {
  const std::int64_t d_heads = network.n_head * network.d_head, d_model = network.d_model;
  const std::int64_t segment = input.segment;
  return std::max(
      segment * (network.d_inner + 3 * d_model),
      (input.window() * 2 + input.segment_keys() * 3) * d_heads + segment * 3 * d_model);
}

std::int64_t row_numbers(const net::Network& network, const net::Geometry& geometry) {
  std::int64_t kept = 0, passing = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const net::Network of_stage = network.of_scale(stage.scale);
    kept += kept_numbers(of_stage, stage);
    passing = std::max(passing, passing_numbers(of_stage, stage));
    if (network.learns_compression()) {
      // The auxiliary loss attends to the leaving states and to what they are compressed to.
      kept += 6 * stage.segment * network.n_head * network.d_head;
    }
  }
  return kept + passing;
}

}  // namespace

MemoryEstimate estimate_memory(const net::Network& network, std::int64_t parameter_count,
                               const TrainingConfig& config, int threads,
                               std::int64_t validation_tokens) {
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  const std::vector<Slice> slices = split_rows(config.batch, config.slices, config.passes);
  const auto count = static_cast<std::int64_t>(slices.size());
  const std::int64_t running = std::min<std::int64_t>(count, threads);
  std::int64_t rows = 0;  // of the largest pass
  for (const Slice& slice : slices) {
    rows = std::max(rows, slice.front().count);
    rows = std::max(rows, slice.back().count);
  }
  MemoryEstimate estimate;
  estimate.process = resident_bytes() + kLibraries;
  estimate.parameters = 3 * parameter_count * kFloat;
  // Beside weights and states lie the factors that were rounded from them.
  const std::int64_t rounded = config.precision == machine::Precision::kBfloat16 ? kFloat / 2 : 0;
  estimate.parameters += parameter_count * rounded;
  // A pass after the first one has gradients of its own, until they are added to its slice's.
  const std::int64_t own = slices.front().size() > 1 ? running : 0;
  estimate.gradients = (count + own) * parameter_count * kFloat;
  // Old and new ones; a memory is a part of its whole window.
  estimate.memories =
      3 * config.batch * net::cost(network, network.lengths).memory_numbers * kFloat;
  const std::int64_t block = std::max(kSoftmaxBlock, kSoftmaxRows * network.vocab_size * kFloat);
  const std::int64_t logits = rows * geometry.lengths.segment * network.vocab_size * kFloat;
  estimate.activations = running * (rows * row_numbers(network, geometry) * (kFloat + rounded) +
                                    std::min(logits, block));
  if (validation_tokens > 0) {
    const net::Lengths lengths = config.evaluation_lengths(network.lengths);
    estimate.validation =
        eval::chunk_bytes(network, net::make_geometry(network, lengths), validation_tokens);
  }
  return estimate;
}

bool fits(const net::Network& network, std::int64_t parameter_count, const TrainingConfig& config,
          int threads, std::int64_t available) {
  const MemoryEstimate estimate = estimate_memory(network, parameter_count, config, threads);
  return estimate.total() - estimate.process <= available;
}

TrainingConfig with_most_passes(TrainingConfig config) {
  const std::int64_t slices = std::max<std::int64_t>(1, config.slices);
  config.passes = (config.batch + slices - 1) / slices;
  return config;
}

std::int64_t choose_passes(const net::Network& network, std::int64_t parameter_count,
                           TrainingConfig config, int threads, std::int64_t available) {
  const auto fits_with = [&](std::int64_t passes) {
    config.passes = passes;
    return fits(network, parameter_count, config, threads, available);
  };
  std::int64_t most = with_most_passes(config).passes;
  if (most == 1 || fits_with(1)) return 1;
  // A second pass brings gradients of its own. From there on more passes need less.
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
