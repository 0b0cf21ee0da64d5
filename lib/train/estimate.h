// Estimates the memory that a training on the CPU needs, before it starts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "train/config.h"

namespace ql::train {

// The data of a training. 0 leaves a part out.
struct EstimatedData {
  std::int64_t frame_bytes = 0;  // every row keeps a decoded frame (shard/token_reader.h)
  std::int64_t validation_tokens = 0;
};

// All members are in bytes.
struct MemoryEstimate {
  std::int64_t process = 0;      // what this process has allocated already: programs and libraries
  std::int64_t data = 0;         // decoded frames of all rows
  std::int64_t parameters = 0;   // weights and Adam's two moments
  std::int64_t gradients = 0;    // of every micro-batch
  std::int64_t memories = 0;     // recurrent memories of all rows
  std::int64_t activations = 0;  // from forward to backward, of the passes that run in parallel
  std::int64_t validation = 0;   // a chunk of the validation data
  std::int64_t checkpoint = 0;   // a copy of the memories
  // Validations and checkpoints run between steps, and reuse the memory of a step's gradients and
  // activations.
  std::int64_t total() const {
    return process + data + parameters + memories +
           std::max({gradients + activations, validation, checkpoint});
  }
};

// Counts the tensors of a training, following lib/nn and lib/kernels. The configuration's slices
// and passes count 1 if they are 0; as many slices run in parallel as there are threads. Throws
// ConfigError if the lengths of a validation do not fit.
MemoryEstimate estimate_memory(const net::Network& network, const TrainingConfig& config,
                               int threads, const EstimatedData& data = {});

// Returns true if the training without validation needs at most `available` bytes beyond those that
// the process has allocated already.
bool fits(const net::Network& network, const TrainingConfig& config, int threads,
          std::int64_t frame_bytes, std::int64_t available);

// Returns the configuration with a pass for every row of a slice.
TrainingConfig with_most_passes(TrainingConfig config);

// Returns the fewest passes with which the training fits. If it never fits, returns the number of
// rows of a slice.
std::int64_t choose_passes(const net::Network& network, TrainingConfig config, int threads,
                           std::int64_t frame_bytes, std::int64_t available);

}  // namespace ql::train
