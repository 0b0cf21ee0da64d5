// Computes the attention of one layer over all heads, with scores that depend on distance (Dai et
// al., 2019, section 3.3). In each head, queries may see only every d-th key (a dilation), and of
// these only the nearest (a span; Beltagy et al., 2020, section 3.1).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "kernels/dropout_kernel.h"
#include "net/geometry.h"

namespace ql::kernels {

// A window of at most this many states is short. Moving its keys and values between memory and a
// core takes more time than computing with them.
inline constexpr std::int64_t kShortWindow = 64;

// Holds the input of attention; H = n_head. All tensors are on one device. Except for the masks,
// and for keys and values, which may be bfloat16 beside float32, they have one dtype.
struct AttentionInput {
  at::Tensor queries;  // [batch, segment, H, d_head]
  // These are the parts of the window, oldest first. Each part is [batch, length, 2, H, d_head]:
  // keys, then values.
  std::vector<at::Tensor> keys_values;
  // Holds the position table [window, H, d_head] of vectors r, whose dot products with queries are
  // scores. Row k is for the distance window-1-k between a query and a key. If undefined, distances
  // have no scores.
  at::Tensor positions;
  at::Tensor content_bias;   // u [H, d_head]; undefined: 0
  at::Tensor position_bias;  // v [H, d_head]; undefined: 0
  // Describes the dropout of probabilities. Its mask is [batch, H, segment / queries_per_mask,
  // window]: this many consecutive queries share a row.
  DropoutDraw dropout;
  std::int64_t queries_per_mask = 1;
  net::AttentionWindow reach;  // limits the earlier keys that a query sees
  // May hold the mask that attention_mask() returns for this input, to save computing it again. The
  // CPU's fused kernel does not read this field.
  at::Tensor hidden = {};
  // If true, the CPU's fused kernel rounds the operands of its products of float32 to bfloat16
  // where this saves time. Scores, softmax and sums stay as they are.
  bool rounds = false;
  // If true, every query sees every key, and the keys need not be those of the queries' own window.
  // Then `positions` must be undefined, and `reach` must have no span and no dilations.
  bool sees_all = false;

  std::int64_t window() const;  // number of states in all parts
};

// Query i of the segment is at window index m + i, where m = window - segment. It sees the keys j
// <= m + i that `reach` allows, or all keys with `sees_all`. Then, with the vectors r of the
// distances m + i - j from `positions`,
//
//   score_ij = ((q_i + u) . k_j + (q_i + v) . r_(m+i-j)) / sqrt(d_head)
//   p_ij     = softmax of score_ij over j
//   sum_i    = sum_j dropout(p_ij) value_j
//
// Returns the sums [batch, segment, H, d_head]. On the CPU, one fused kernel computes the sums, in
// float32 or float64. On other devices attention_of_operations() does. Throws std::logic_error if
// `sees_all` is set and `positions`, a span or dilations are given.
at::Tensor relative_attention(const AttentionInput& input);

// Returns a mask to add to scores: minus infinity where a query does not see a key, else 0. The
// mask is float32 [H, segment, window], or [segment, window] if `reach` has no dilations.
at::Tensor attention_mask(std::int64_t segment, std::int64_t window,
                          const net::AttentionWindow& reach, const at::Device& device);

// Computes relative_attention() by ATen's operations, on any device.
at::Tensor attention_of_operations(const AttentionInput& input);

// Returns the probabilities [batch, n_head, segment, window] before dropout; 0 for a key that a
// query does not see. ATen's operations compute the probabilities again, because
// relative_attention() does not return them.
at::Tensor attention_probabilities(const AttentionInput& input);

// Returns how much attention each key gets, [batch, window] without gradient: its probability,
// averaged over the heads and over all queries of the segment. ATen's operations compute the scores
// again, as for attention_probabilities().
at::Tensor attention_usage(const AttentionInput& input);

}  // namespace ql::kernels
