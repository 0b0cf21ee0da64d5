// Measures the memory that a training run on the CPU needs, before the run begins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "nn/model.h"
#include "train/config.h"
#include "train/gradients.h"

namespace ql::train {

// Holds the bytes that a training run has at once. Validations and checkpoints run between steps.
struct TrainingMemory {
  std::int64_t process = 0;     // of the program, before it has weights
  std::int64_t data = 0;        // decoded frames of all rows
  std::int64_t weights = 0;     // weights, Adam's two moments, the rounded copy for bfloat16
  std::int64_t memories = 0;    // memories of all rows, before and after a step
  std::int64_t step = 0;        // gradients and activations
  std::int64_t validation = 0;  // a chunk of the validation data (eval/chunk_size.h)

  // Returns the sum, with the gaps between tensors.
  std::int64_t total() const;
};

// Runs parts of a training run on a network of the same form, whose weights are zeros, and counts
// their tensors (machine/tensor_memory.h). It changes nothing that a training run reads.
class MemoryTrial {
 public:
  // `config.batch` is the number of this process's rows; the process computes `threads` slices
  // (micro-batches) in parallel. No trial takes more than `limit` bytes.
  MemoryTrial(const net::Network& network, const TrainingConfig& config, int threads,
              std::int64_t limit);

  // Returns the tensors of a training run without validations that divides its rows in this way, or
  // nothing if they need more than the limit. Takes at most about the time of a step.
  std::optional<TrainingMemory> step(std::int64_t slices, std::int64_t passes);

  // Adds validations with a text of `tokens` tokens to `memory`. Returns nothing if they need more
  // than the limit. Reads at most as many segments as the batch has rows.
  std::optional<TrainingMemory> with_validation(TrainingMemory memory, std::int64_t tokens) const;

 private:
  std::optional<TrainingMemory> run_pass(const std::vector<Slice>& slices) const;

  const TrainingConfig config_;
  const int threads_;
  const std::int64_t limit_;
  const std::int64_t weights_;      // bytes of the weights
  std::optional<nn::Model> model_;  // absent if weights and moments need more than the limit
  std::map<std::pair<std::int64_t, std::int64_t>, std::optional<TrainingMemory>> steps_;
};

// Returns the fewest passes (accumulation steps), from 1 to `most`, with which the training run
// fits, or `most` if it never does. Tries the fewest passes first, and about 2 log2(most) numbers.
std::int64_t choose_passes(std::int64_t most, const std::function<bool(std::int64_t passes)>& fits);

}  // namespace ql::train
