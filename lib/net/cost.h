// What a network costs, counted from its geometry: the figures that qlctx prints and that the
// benchmarks divide by.
#pragma once

#include <cstdint>

#include "net/geometry.h"

namespace ql::net {

struct Cost {
  std::int64_t parameters = 0;         // embedding counted once (tied)
  double forward_flops_per_token = 0;  // multiply and add count as two; matrix products only,
                                       // each needed product once, at steady state
  std::int64_t memory_states = 0;      // states of d_model numbers kept per stream between steps
};

// vocab_size 0 leaves embedding and softmax out.
Cost cost(const Network& network, const Lengths& lengths);

}  // namespace ql::net
