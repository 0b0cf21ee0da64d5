// Estimates the memory that a training run on the CPU needs, before the run starts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "train/config.h"

namespace ql::train {

// Describes the data of a training run. A member of 0 adds nothing to the estimate.
struct EstimatedData {
  std::int64_t frame_bytes = 0;  // of the decoded frame that each row keeps (shard/token_reader.h)
  std::int64_t validation_tokens = 0;
};

// All members are in bytes.
struct MemoryEstimate {
  std::int64_t process = 0;      // already resident, and libraries that the first step loads
  std::int64_t data = 0;         // decoded frames of all rows
  std::int64_t parameters = 0;   // weights, Adam's two moments, bfloat16 copies
  std::int64_t gradients = 0;    // of micro-batches, and of parallel accumulation steps
  std::int64_t memories = 0;     // memories of all rows, before and after a step
  std::int64_t activations = 0;  // kept for the backward pass by parallel accumulation steps
  std::int64_t validation = 0;   // eval::chunk_bytes() of the validation data
  std::int64_t checkpoint = 0;   // a copy of the memories
  // Validations and checkpoints run between steps, so they reuse the memory of a step's gradients
  // and activations.
  std::int64_t total() const {
    return process + data + parameters + memories +
           std::max({gradients + activations, validation, checkpoint});
  }
};

// Counts the tensors that lib/nn and lib/kernels make in a training run. If config.slices or
// config.passes is 0, it counts as 1. At most `threads` slices (micro-batches) run in parallel.
// Throws ConfigError if the network cannot have the lengths of training or validation.
MemoryEstimate estimate_memory(const net::Network& network, const TrainingConfig& config,
                               int threads, const EstimatedData& data = {});

// Returns true if the training run without validation needs at most `available` bytes in addition
// to MemoryEstimate::process.
bool fits(const net::Network& network, const TrainingConfig& config, int threads,
          std::int64_t frame_bytes, std::int64_t available);

// Returns `config` with as many passes (accumulation steps) as the largest slice (micro-batch) has
// rows.
TrainingConfig with_most_passes(TrainingConfig config);

// Returns the smallest number of passes (accumulation steps of a slice) with which the training run
// fits() into `available` bytes. If none fits, returns the largest useful one: the rows of the
// largest slice.
std::int64_t choose_passes(const net::Network& network, TrainingConfig config, int threads,
                           std::int64_t frame_bytes, std::int64_t available);

}  // namespace ql::train
