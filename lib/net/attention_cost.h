// Counts what a kind of attention costs and keeps. It runs in kernels/attention.h and
// nn/linear_attention_internal.h.
#pragma once

#include <cstdint>

#include "net/geometry.h"

namespace ql::net {

// Queries that linear attention compares with each other pair by pair.
constexpr std::int64_t kLinearBlock = 64;

// The cost of weighing the values of one layer in one step of one row. Queries, keys and values
// themselves do not count.
struct AttentionCost {
  double products = 0;       // multiplications
  double kept_scores = 0;    // numbers that dropout acts on and the backward pass reads
  double kept_features = 0;  // further numbers that the backward pass reads
  double held = 0;           // numbers that evaluation holds at once
};

// Returns the cost of the layer that reads the states of `input`.
AttentionCost attention_cost(const Network& network, const Stage& input);

}  // namespace ql::net
