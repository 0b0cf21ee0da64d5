// Counts the bytes of a pass and of a chunk of validation data, and chooses the number of
// accumulation steps.

#include "train/memory_trial.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "eval/chunk_size.h"
#include "eval/evaluate.h"
#include "machine/tensor_memory.h"
#include "machine/threads.h"
#include "net/cost.h"

namespace ql::train {

std::int64_t TrainingMemory::total() const {
  // The gaps of the C library's heap, as tests/bench/memory measured them.
  constexpr std::int64_t kTensorsOfGaps = 10;
  // A checkpoint is written from a copy of the memories.
  const std::int64_t tensors = weights + memories + std::max({step, validation, memories / 2});
  return process + data + tensors + tensors / kTensorsOfGaps;
}

// Returns the result of work(count), or nothing if the work needs more than `limit` bytes.
static std::optional<TrainingMemory> measured_within(
    std::int64_t limit, const std::function<TrainingMemory(machine::MemoryCount&)>& work) {
  machine::MemoryCount count(limit);
  try {
    const TrainingMemory memory = work(count);
    return memory.total() <= limit ? std::optional(memory) : std::nullopt;
  } catch (const std::exception&) {
    if (!count.exceeded()) throw;
    return std::nullopt;
  }
}

// Returns ids [rows, segment + 1] from all parts of the vocabulary. As long as there are targets,
// every cluster of the softmax has one: a cluster without a target has no gradient.
static at::Tensor trial_ids(const net::Network& network, const TrainingConfig& config,
                            std::int64_t rows) {
  const std::int64_t segment = network.lengths.segment, size = network.vocab_size;
  // Multiples of a number near the golden section of the vocabulary are spread evenly.
  std::int64_t stride = 1 + size * 618 / 1000;
  while (std::gcd(stride, size) > 1) ++stride;
  at::Tensor ids = at::arange(rows * (segment + 1), at::kLong).mul_(stride).remainder_(size);
  ids = ids.view({rows, segment + 1});
  const std::int64_t counted = counted_targets(segment, config);
  at::Tensor targets = ids.narrow(1, segment + 1 - counted, counted);
  std::int64_t target = 0;
  for (const net::Cluster& cluster : net::clusters(network)) {
    if (target == targets.numel()) break;
    targets[target / counted][target % counted] = cluster.begin;
    ++target;
  }
  return ids;
}

MemoryTrial::MemoryTrial(const net::Network& network, const TrainingConfig& config, int threads,
                         std::int64_t limit)
    : config_(config),
      threads_(threads),
      limit_(limit),
      weights_(net::cost(network, network.lengths).parameters * std::int64_t{sizeof(float)}) {
  if (3 * weights_ > limit) return;
  net::Network all_scales = network;
  all_scales.droppath = 0;
  model_.emplace(all_scales, at::TensorOptions(at::kFloat));
}

std::optional<TrainingMemory> MemoryTrial::step(std::int64_t slices, std::int64_t passes) {
  const auto [entry, is_new] = steps_.try_emplace({slices, passes});
  if (is_new && model_) entry->second = run_pass(split_rows(config_.batch, slices, passes));
  return entry->second;
}

std::optional<TrainingMemory> MemoryTrial::run_pass(const std::vector<Slice>& slices) const {
  const net::Network& network = model_->network();
  const std::int64_t rows = slices.back().back().count;  // of the largest pass
  const auto all = static_cast<std::int64_t>(slices.size());
  // This many slices run in parallel. The others have run before, and have left their gradients.
  const std::int64_t running = std::min<std::int64_t>(all, threads_), done = all - running;
  const bool accumulates = slices.back().size() > 1;

  const nn::ModelAtLengths at_lengths(*model_, network.lengths);
  nn::Memory memory = at_lengths.start_memory(rows);
  const at::Tensor ids = trial_ids(network, config_, rows);
  nn::StepOptions options = step_options(config_, 0, 0);
  if (network.reset_memory_at_documents) {
    options.document_offsets.assign(static_cast<std::size_t>(rows), 0);
  }

  return measured_within(limit_, [&](machine::MemoryCount& count) {
    TrainingMemory result;
    const nn::ModelPrecision precision(*model_, config_.precision);
    result.weights = 3 * weights_ + count.bytes();
    for (const nn::NamedTensor& part : memory.named()) {
      const auto bytes = static_cast<std::int64_t>(part.tensor.nbytes());
      // The memories before a step stay until the step is known to be good.
      result.memories += 2 * config_.batch * bytes / rows;
    }
    count.add(3 * weights_ + done * weights_ + result.memories);
    count.set_copies(running);
    at::Tensor first;
    Replicas replicas(at_lengths, 1, [&](std::size_t, std::size_t index, at::Tensor gradient) {
      // GradientExchange adds up the gradients of the first parameter after the backward pass. It
      // adds up the others at once, and keeps the sum alone. A gradient that this pass lacks,
      // because it has fewer targets than the softmax has clusters, may be there in a step.
      if (index == 0) {
        first = std::move(gradient);
      } else {
        count.add((1 - done) *
                  static_cast<std::int64_t>(model_->parameters()[index].tensor.nbytes()));
      }
    });
    const nn::ModelAtLengths& replica = replicas.of(0);
    if (accumulates) {
      for (const nn::NamedTensor& parameter : replica.model().parameters()) {
        parameter.tensor.mutable_grad() = at::zeros_like(parameter.tensor);
      }
    }
    const auto run = [&](std::int64_t, std::int64_t) {
      const StepLoss loss = step_loss(replica, ids, memory, options, config_);
      replicas.backward(0, loss.total, !accumulates);
    };
    if (all == 1) {
      run(0, 1);  // on all threads
    } else {
      machine::for_pieces(1, 1, run);
    }
    result.step = count.peak() - result.weights - result.memories;
    return result;
  });
}

std::optional<TrainingMemory> MemoryTrial::with_validation(TrainingMemory memory,
                                                           std::int64_t tokens) const {
  if (!model_) return std::nullopt;
  eval::EvaluationOptions options;
  options.lengths = config_.evaluation_lengths(model_->network().lengths);
  const std::int64_t segment = options.lengths.segment;
  const std::int64_t segments =
      std::min((tokens + segment - 2) / segment,
               eval::segments_of_chunk(nn::ModelAtLengths(*model_, options.lengths)));
  const std::int64_t tried = std::min(segments, config_.batch);
  const std::vector<std::int64_t> starts;
  const eval::TokenSource zeros{
      "", tried * segment + 1,
      [](std::int64_t, std::int64_t count, std::int64_t* out) { std::fill_n(out, count, 0); },
      [&starts]() -> const std::vector<std::int64_t>& { return starts; }};
  return measured_within(limit_, [&](machine::MemoryCount& count) {
    const nn::ModelPrecision precision(*model_, config_.precision);
    const std::int64_t before = count.bytes();
    eval::evaluate(*model_, zeros, options);
    // The bytes of more segments are in proportion, or fewer.
    memory.validation = (count.peak() - before) * segments / tried;
    return memory;
  });
}

std::int64_t choose_passes(std::int64_t most,
                           const std::function<bool(std::int64_t passes)>& fits) {
  std::int64_t too_few = 0, passes = 1;
  while (passes < most && !fits(passes)) {
    too_few = passes;
    passes = std::min(2 * passes, most);
  }
  while (passes - too_few > 1) {
    const std::int64_t middle = (too_few + passes) / 2;
    (fits(middle) ? passes : too_few) = middle;
  }
  return passes;
}

}  // namespace ql::train
