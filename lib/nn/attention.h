// Relative attention of one layer (Dai et al., 2019, section 3.3), over all heads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace ql::nn {

// What attention reads; H = n_head. All of one dtype and on one device.
struct AttentionInput {
  at::Tensor queries;           // [batch, segment, H, d_head]
  at::Tensor keys_values;       // [batch, window, 2, H, d_head]: keys, then values
  at::Tensor positions;         // [window, H, d_head]: row k is distance window-1-k, projected
  at::Tensor content_bias;      // u [H, d_head]
  at::Tensor position_bias;     // v [H, d_head]
  at::Tensor probability_mask;  // dropout's factors [batch, H, segment, window], or undefined
};

// Query i of the segment sits at window index m + i, m = window - segment, and sees the keys
// j <= m + i with score ((q_i + u) k_j + (q_i + v) r_(m+i-j)) / sqrt(d_head). Returns the sums of
// the values [batch, segment, H, d_head]. On the CPU this is one pass of our own for float32 and
// float64, elsewhere attention_of_operations().
at::Tensor relative_attention(const AttentionInput& input);

// The same by ATen's operations, on any device.
at::Tensor attention_of_operations(const AttentionInput& input);

}  // namespace ql::nn
