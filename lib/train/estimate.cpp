#include "train/estimate.h"

#include "base/resources.h"
#include "eval/chunk_size.h"
#include "net/cost.h"
#include "train/slices.h"
#include "train/step_memory.h"

namespace ql::train {
namespace {

constexpr std::int64_t kFloat = 4;
// The first step loads so much of LibTorch's code and tables. Measured.
constexpr std::int64_t kLibraries = std::int64_t{40} << 20;

// Returns the bytes that passes which run side by side hold beside the complete gradients of their
// slices. A pass holds most at one of two moments. Where its backward pass begins, nothing is
// released yet, but of the gradients there are only those that the softmax has made. At its end all
// gradients are there, and what our nodes keep; the embedding's gradient then joins that of the
// softmax.
std::int64_t bytes_of_passes(const PassMemory& pass, const VocabularyMemory& vocabulary,
                             std::int64_t gradients, std::int64_t running) {
  const std::int64_t begin =
      pass.kept + pass.released + vocabulary.gradients + std::max(pass.ending, pass.passing);
  const std::int64_t end = pass.kept + gradients + std::max(pass.passing, 2 * vocabulary.table);
  // In the arena that gradient may lie where the softmax had its exponentials, and those of the
  // next pass find no place then. A large one is mapped by itself, while their place waits for
  // them.
  const std::int64_t lost = std::min(vocabulary.table, pass.ending);
  return running * (std::max(begin, end) + lost - gradients);
}

}  // namespace

MemoryEstimate estimate_memory(const net::Network& network, std::int64_t parameter_count,
                               const TrainingConfig& config, int threads,
                               const EstimatedData& data) {
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  const std::vector<Slice> slices = split_rows(config.batch, config.slices, config.passes);
  const auto count = static_cast<std::int64_t>(slices.size());
  const std::int64_t running = std::min<std::int64_t>(count, threads);
  std::int64_t rows = 0;  // of the largest pass
  for (const Slice& slice : slices) {
    rows = std::max(rows, slice.front().count);
    rows = std::max(rows, slice.back().count);
  }
  const std::int64_t weights = parameter_count * kFloat;
  MemoryEstimate estimate;
  estimate.process = resident_bytes() + kLibraries;
  estimate.data = config.batch * data.frame_bytes;
  estimate.parameters = 3 * weights;
  if (config.precision == machine::Precision::kBfloat16) {
    estimate.parameters += weights / 2;  // the factors that were rounded from them
  }
  // A pass after the first one has gradients of its own, until they are added to its slice's.
  const std::int64_t own = slices.front().size() > 1 ? running : 0;
  estimate.gradients = (count + own) * weights;
  // A step that diverges goes back to the old ones, so both are there.
  estimate.memories = 2 * config.batch * memory_bytes(geometry);
  const PassMemory pass = pass_memory(network, geometry, rows, config.precision, threads);
  estimate.activations = bytes_of_passes(pass, vocabulary_memory(network), weights, running);
  if (own > 0 && rows > 1) {
    // Passes leave gaps in the arena that the tensors of later ones do not fit: about a row.
    // Measured.
    estimate.activations += running * (pass.kept + pass.released) / rows;
  }
  estimate.checkpoint = kFloat * config.batch * net::cost(network, network.lengths).memory_numbers;
  if (data.validation_tokens > 0) {
    const net::Lengths lengths = config.evaluation_lengths(network.lengths);
    estimate.validation = eval::chunk_bytes(network, net::make_geometry(network, lengths),
                                            data.validation_tokens, threads);
  }
  return estimate;
}

bool fits(const net::Network& network, std::int64_t parameter_count, const TrainingConfig& config,
          int threads, std::int64_t frame_bytes, std::int64_t available) {
  const MemoryEstimate estimate =
      estimate_memory(network, parameter_count, config, threads, {frame_bytes, 0});
  return estimate.total() - estimate.process <= available;
}

TrainingConfig with_most_passes(TrainingConfig config) {
  const std::int64_t slices = std::max<std::int64_t>(1, config.slices);
  config.passes = (config.batch + slices - 1) / slices;
  return config;
}

std::int64_t choose_passes(const net::Network& network, std::int64_t parameter_count,
                           TrainingConfig config, int threads, std::int64_t frame_bytes,
                           std::int64_t available) {
  const auto fits_with = [&](std::int64_t passes) {
    config.passes = passes;
    return fits(network, parameter_count, config, threads, frame_bytes, available);
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
