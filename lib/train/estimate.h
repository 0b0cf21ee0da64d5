// Estimates the memory that a training on the CPU will need, before it starts.
#pragma once

#include <cstdint>

#include "net/geometry.h"
#include "train/config.h"

namespace ql::train {

// Bytes.
struct MemoryEstimate {
  std::int64_t process = 0;      // what this process holds already: programs and libraries
  std::int64_t parameters = 0;   // weights and Adam's two moments
  std::int64_t gradients = 0;    // of every slice
  std::int64_t memories = 0;     // recurrent memories of all rows
  std::int64_t activations = 0;  // from forward to backward, of the passes that run side by side
  // A chunk of the validation data. It comes between two steps, but the memory that a step frees
  // stays with the process, in pieces that a chunk's tensors seldom fit.
  std::int64_t validation = 0;
  std::int64_t total() const {
    return process + parameters + gradients + memories + activations + validation;
  }
};

// Counts the large tensors of a step in float32, as lib/nn computes it. The configuration's slices
// and passes count 1 where they are 0; as many slices run side by side as there are threads.
// `validation_tokens` 0 leaves validation out. Throws ConfigError when its lengths do not fit.
MemoryEstimate estimate_memory(const net::Network& network, std::int64_t parameter_count,
                               const TrainingConfig& config, int threads,
                               std::int64_t validation_tokens = 0);

// Tells whether the training without validation needs no more than `available` bytes beyond what
// the process holds already.
bool fits(const net::Network& network, std::int64_t parameter_count, const TrainingConfig& config,
          int threads, std::int64_t available);

// Returns the configuration with a pass for every row of a slice.
TrainingConfig with_most_passes(TrainingConfig config);

// Returns the fewest passes with which the training fits. When it never fits, returns as many as a
// slice has rows.
std::int64_t choose_passes(const net::Network& network, std::int64_t parameter_count,
                           TrainingConfig config, int threads, std::int64_t available);

}  // namespace ql::train
