// Attention in time linear in the window (Katharopoulos et al., 2020): a sum over keys and values
// is kept in place of the scores of all pairs.
#pragma once

#include <ATen/ATen.h>

#include "kernels/attention.h"

namespace ql::nn {

// Let f(x) = elu(x) + 1 be the feature map. The rows r of `positions` are counted from the window's
// end, for queries as for keys. Then
//
//   w_ij = f(q_i + u + r_i) . f(k_j + v + r_j)
//   sum_i = (sum_j w_ij value_j) / (1e-6 + sum_j w_ij)
//
// over the keys j <= m + i of query i, which is at window index m + i. The parameters are thus
// those of relative attention. Returns [batch, segment, H, d_head]. The input must have no reach
// and no probability_kept.
at::Tensor linear_attention(const kernels::AttentionInput& input);

}  // namespace ql::nn
