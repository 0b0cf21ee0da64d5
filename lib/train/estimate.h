// The memory that a training will need, said before it starts.
#pragma once

#include <cstdint>

#include "net/geometry.h"

namespace ql::train {

struct MemoryEstimate {
  std::int64_t parameters = 0;   // bytes of weights, gradients and Adam's two moments
  std::int64_t activations = 0;  // bytes kept from forward to backward
  std::int64_t total() const { return parameters + activations; }
};

// Counts the large tensors of a step in float32, as lib/nn computes it.
MemoryEstimate estimate_memory(const net::Network& network, std::int64_t parameter_count,
                               std::int64_t batch);

}  // namespace ql::train
