// Estimates the memory that a training on the CPU will need, before it starts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "net/geometry.h"
#include "train/config.h"

namespace ql::train {

// The data of a training. 0 leaves a part out.
struct EstimatedData {
  std::int64_t frame_bytes = 0;  // every row keeps a decoded frame (shard/token_reader.h)
  std::int64_t validation_tokens = 0;
};

// Bytes.
struct MemoryEstimate {
  std::int64_t process = 0;      // what this process holds already: programs and libraries
  std::int64_t data = 0;         // decoded frames of all rows
  std::int64_t parameters = 0;   // weights and Adam's two moments
  std::int64_t gradients = 0;    // of every slice
  std::int64_t memories = 0;     // recurrent memories of all rows
  std::int64_t activations = 0;  // from forward to backward, of the passes that run side by side
  std::int64_t validation = 0;   // a chunk of the validation data
  std::int64_t checkpoint = 0;   // a copy of the memories
  // Validations and checkpoints come between steps, and find their memory where a step had its
  // gradients and activations.
  std::int64_t total() const {
    return process + data + parameters + memories +
           std::max({gradients + activations, validation, checkpoint});
  }
};

// Counts the tensors of a training, as lib/nn and lib/kernels make them. The configuration's slices
// and passes count 1 where they are 0; as many slices run side by side as there are threads. Throws
// ConfigError when the lengths of a validation do not fit.
MemoryEstimate estimate_memory(const net::Network& network, std::int64_t parameter_count,
                               const TrainingConfig& config, int threads,
                               const EstimatedData& data = {});

// Tells whether the training without validation needs no more than `available` bytes beyond what
// the process holds already.
bool fits(const net::Network& network, std::int64_t parameter_count, const TrainingConfig& config,
          int threads, std::int64_t frame_bytes, std::int64_t available);

// Returns the configuration with a pass for every row of a slice.
TrainingConfig with_most_passes(TrainingConfig config);

// Returns the fewest passes with which the training fits. When it never fits, returns as many as a
// slice has rows.
std::int64_t choose_passes(const net::Network& network, std::int64_t parameter_count,
                           TrainingConfig config, int threads, std::int64_t frame_bytes,
                           std::int64_t available);

}  // namespace ql::train
