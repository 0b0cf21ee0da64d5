// Attention of one layer over all heads, with scores that depend on distance (Dai et al., 2019,
// section 3.3). Windows may be limited, with a dilation per head (Beltagy et al., 2020, section
// 3.1).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::kernels {

// Holds the input of attention; H = n_head. All tensors except the masks have one dtype, and all
// are on one device.
struct AttentionInput {
  at::Tensor queries;  // [batch, segment, H, d_head]
  // [batch, length, 2, H, d_head]: keys, then values. The parts, oldest first, make up the window.
  std::vector<at::Tensor> keys_values;
  // The scores of distances; row k is distance window-1-k. [window, H, d_head]: vectors r, which
  // queries are multiplied by. [window, H]: the scores s themselves, constants without gradient.
  // Undefined: none.
  at::Tensor positions;
  at::Tensor content_bias;   // u [H, d_head]; undefined: 0
  at::Tensor position_bias;  // v [H, d_head]; undefined: 0
  // 1 for each probability that dropout keeps, uint8 [batch, H, segment, window]. The kept ones are
  // multiplied by the factor. Undefined: nothing is dropped.
  at::Tensor probability_kept;
  double kept_factor = 1;
  net::AttentionWindow reach;  // which of the keys before it a query sees
  // This is the result of attention_mask() for these lengths, if the caller has it already. Kernels
  // do not read it.
  at::Tensor hidden = {};
  // If true, every query sees every key, and the keys need not be those of the queries' own window.
  // Then there must be no positions, and no bounds in `reach`.
  bool sees_all = false;

  std::int64_t window() const;  // states of all parts
};

// Query i of the segment sits at window index m + i, m = window - segment, and sees those keys j <=
// m + i that `reach` allows:
//
//   score_ij = ((q_i + u) . k_j + (q_i + v) . r_(m+i-j)) / sqrt(d_head) + s_(m+i-j)
//   p_ij     = softmax of score_ij over j
//   sum_i    = sum_j dropout(p_ij) value_j
//
// Returns the sums [batch, segment, H, d_head]. Throws std::logic_error if `sees_all` is combined
// with positions or bounds, and if scores s require a gradient. On the CPU, float32 and float64 go
// through one fused kernel; everything else goes through attention_of_operations().
at::Tensor relative_attention(const AttentionInput& input);

// Returns what hides keys when it is added to scores: minus infinity where a query does not see a
// key, else 0. float32 [H, segment, window], or [segment, window] when all heads see the same keys.
at::Tensor attention_mask(std::int64_t segment, std::int64_t window,
                          const net::AttentionWindow& reach, const at::Device& device);

// Computes relative_attention() by ATen's operations, on any device.
at::Tensor attention_of_operations(const AttentionInput& input);

// Returns the probabilities [batch, n_head, segment, window] before dropout; 0 for a key that a
// query does not see. ATen's operations compute them again, because the fused kernel never has all
// of them.
at::Tensor attention_probabilities(const AttentionInput& input);

// Returns how much attention each key gets, [batch, window] without gradient: its probability,
// averaged over the heads and over all queries of the segment. This is a second pass over the
// scores.
at::Tensor attention_usage(const AttentionInput& input);

}  // namespace ql::kernels
