// Relative attention of one layer (Dai et al., 2019, section 3.3), over all heads, and what narrows
// or changes it: Shaw et al.'s (2018) learned positions, absolute positions (none here), windows
// with a dilation per head (Beltagy et al., 2020, section 3.1).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::kernels {

// What attention reads; H = n_head. All of one dtype and on one device.
struct AttentionInput {
  at::Tensor queries;  // [batch, segment, H, d_head]
  // [batch, length, 2, H, d_head], keys, then values: the window in parts, the oldest first.
  std::vector<at::Tensor> keys_values;
  // [window, H, d_head]: row k is distance window-1-k, projected; undefined: no position scores.
  at::Tensor positions;
  at::Tensor content_bias;   // u [H, d_head]; undefined: 0
  at::Tensor position_bias;  // v [H, d_head]; undefined: 0
  // Which probabilities dropout keeps, uint8 [batch, H, segment, window]; undefined: all,
  // as they are. The kept ones are multiplied by the factor.
  at::Tensor probability_kept;
  double kept_factor = 1;
  net::AttentionReach reach;  // which of the keys before it a query sees
  // hidden_keys() of these lengths, if made already; kernels do not read it.
  at::Tensor hidden = {};

  std::int64_t window() const;  // states of all parts
};

// Query i of the segment sits at window index m + i, m = window - segment, and sees those keys
// j <= m + i that `reach` allows, with score ((q_i + u) k_j + (q_i + v) r_(m+i-j)) / sqrt(d_head).
// Returns the sums of the values [batch, segment, H, d_head]. On the CPU this is one pass of our
// own for float32 and float64, elsewhere attention_of_operations().
at::Tensor relative_attention(const AttentionInput& input);

// True where a query does not see a key: [H, segment, window], or [segment, window] when all heads
// see the same.
at::Tensor hidden_keys(std::int64_t segment, std::int64_t window, const net::AttentionReach& reach,
                       const at::Device& device);

// The same by ATen's operations, on any device.
at::Tensor attention_of_operations(const AttentionInput& input);

// How much attention each key gets: its probability, before dropout, averaged over the heads and
// over all queries of the segment; a query that does not see it counts 0. [batch, window], without
// gradient. A second pass over the scores.
at::Tensor attention_usage(const AttentionInput& input);

}  // namespace ql::kernels
