// Relative attention of one layer over all heads (Dai et al., 2019, section 3.3). Positions may
// also be learned (Shaw et al., 2018) or, with absolute encodings, absent here; windows may be
// limited, with a dilation per head (Beltagy et al., 2020, section 3.1).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::kernels {

// The input of attention; H = n_head. All tensors have one dtype, but for the masks, and are on one
// device.
struct AttentionInput {
  at::Tensor queries;  // [batch, segment, H, d_head]
  // [batch, length, 2, H, d_head], keys, then values. The parts make up the window, the oldest
  // first.
  std::vector<at::Tensor> keys_values;
  // [window, H, d_head]: row k is distance window-1-k, projected. Undefined: no position scores.
  at::Tensor positions;
  at::Tensor content_bias;   // u [H, d_head]; undefined: 0
  at::Tensor position_bias;  // v [H, d_head]; undefined: 0
  // 1 for each probability that dropout keeps, uint8 [batch, H, segment, window]. The kept ones are
  // multiplied by the factor. Undefined: all stay as they are.
  at::Tensor probability_kept;
  double kept_factor = 1;
  net::AttentionReach reach;  // which of the keys before it a query sees
  // hidden_keys() of these lengths, if it was made already. Kernels do not read it.
  at::Tensor hidden = {};
  // Every query sees every key: the keys need not be those of the queries' own window. Then there
  // are no positions, and no bounds in `reach`.
  bool sees_all = false;

  std::int64_t window() const;  // states of all parts
};

// Query i of the segment sits at window index m + i, m = window - segment, and sees those keys
// j <= m + i that `reach` allows:
//
//   score_ij = ((q_i + u) . k_j + (q_i + v) . r_(m+i-j)) / sqrt(d_head)
//   p_ij     = softmax of score_ij over j
//   sum_i    = sum_j dropout(p_ij) value_j
//
// Returns the sums [batch, segment, H, d_head]. Throws std::logic_error where `sees_all` meets
// positions or bounds. On the CPU this is one pass of our own for float32
// and float64, elsewhere attention_of_operations().
at::Tensor relative_attention(const AttentionInput& input);

// True where a query does not see a key: [H, segment, window], or [segment, window] when all heads
// see the same.
at::Tensor hidden_keys(std::int64_t segment, std::int64_t window, const net::AttentionReach& reach,
                       const at::Device& device);

// relative_attention() by ATen's operations, on any device.
at::Tensor attention_of_operations(const AttentionInput& input);

// Returns the probabilities [batch, n_head, segment, window] before dropout; 0 for a key that a
// query does not see.
at::Tensor attention_probabilities(const AttentionInput& input);

// Returns how much attention each key gets, [batch, window] without gradient: its probability,
// averaged over the heads and over all queries of the segment. This is a second pass over the
// scores.
at::Tensor attention_usage(const AttentionInput& input);

}  // namespace ql::kernels
