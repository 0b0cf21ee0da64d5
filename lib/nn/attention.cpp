#include "nn/attention.h"

#include <cmath>
#include <limits>

namespace ql::nn {
namespace {

// scores[.., i, k] by row k of the position table -> scores[.., i, j] by key j, with
// k = segment - 1 - i + j. Keys in the future get another row's number; the mask hides them.
at::Tensor relative_shift(const at::Tensor& by_row) {
  const std::int64_t batch = by_row.size(0), heads = by_row.size(1);
  const std::int64_t segment = by_row.size(2), window = by_row.size(3);
  // One zero column in front makes row i+1 start where row i's key numbering has moved by one.
  at::Tensor padded = at::constant_pad_nd(by_row, {1, 0});
  padded = padded.view({batch, heads, window + 1, segment});
  return padded.narrow(2, 1, window).reshape({batch, heads, segment, window});
}

}  // namespace

at::Tensor future_mask(std::int64_t segment, std::int64_t window, const at::Device& device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor query = at::arange(window - segment, window, options).unsqueeze(1);
  return at::arange(window, options).unsqueeze(0).gt(query);
}

at::Tensor relative_attention(const AttentionInput& input) {
  const std::int64_t segment = input.queries.size(1);
  const std::int64_t window = input.keys.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(input.queries.size(3)));

  const at::Tensor content_queries = (input.queries + input.content_bias).transpose(1, 2);
  const at::Tensor position_queries = (input.queries + input.position_bias).transpose(1, 2);
  at::Tensor scores = at::matmul(content_queries, input.keys.permute({0, 2, 3, 1}));
  scores =
      scores + relative_shift(at::matmul(position_queries, input.positions.permute({1, 2, 0})));
  scores = (scores * scale)
               .masked_fill(future_mask(segment, window, scores.device()),
                            -std::numeric_limits<double>::infinity());
  at::Tensor probabilities = at::softmax(scores, -1);
  if (input.probability_mask.defined()) {
    probabilities = probabilities * input.probability_mask;
  }
  return at::matmul(probabilities, input.values.transpose(1, 2)).transpose(1, 2);
}

}  // namespace ql::nn
