#include "nn/linear_attention_internal.h"

#include <algorithm>

#include "kernels/projection.h"
#include "net/attention_cost.h"

namespace ql::nn {
namespace {

// Blocks of so many queries are small beside the window and large enough for matrix products.
using net::kLinearBlock;
// Keeps the quotient finite where all features vanish.
constexpr double kSmallestSum = 1e-6;

// f(states + bias + positions) with f(x) = elu(x) + 1: [batch, length, H, d_head] -> [batch, H,
// length, d_head]. `positions` is [length, H, d_head].
at::Tensor features(const at::Tensor& states, const at::Tensor& bias, const at::Tensor& positions) {
  at::Tensor sum = bias.defined() ? states + bias : states;
  sum = positions.defined() ? sum + positions : sum;
  return (at::elu(sum) + 1).transpose(1, 2);
}

at::Tensor last_rows(const at::Tensor& positions, std::int64_t count) {
  return positions.defined() ? positions.narrow(0, positions.size(0) - count, count) : positions;
}

// Sums over the keys so far.
struct Sums {
  at::Tensor values;   // of f(key)^T value [batch, H, d_head, d_head]
  at::Tensor weights;  // of f(key) [batch, H, d_head, 1]

  void add(const at::Tensor& keys, const at::Tensor& of_values) {
    values = values + at::matmul(keys.transpose(2, 3), of_values);
    weights = weights + keys.sum(2).unsqueeze(3);
  }
};

}  // namespace

at::Tensor linear_attention(const kernels::AttentionInput& input) {
  const std::int64_t streams = input.queries.size(0);
  if (streams > 1 && kernels::RowsApart::live()) {
    std::vector<at::Tensor> sums;
    for (std::int64_t stream = 0; stream < streams; ++stream) {
      kernels::AttentionInput alone = input;
      alone.queries = input.queries.narrow(0, stream, 1);
      for (at::Tensor& part : alone.keys_values) part = part.narrow(0, stream, 1);
      sums.push_back(linear_attention(alone));
    }
    return at::cat(sums);
  }
  const std::int64_t segment = input.queries.size(1), memory = input.window() - segment;
  const at::Tensor keys_values =
      input.keys_values.size() == 1 ? input.keys_values.front() : at::cat(input.keys_values, 1);
  const at::Tensor queries =
      features(input.queries, input.content_bias, last_rows(input.positions, segment));
  const at::Tensor keys = features(keys_values.select(2, 0), input.position_bias, input.positions);
  const at::Tensor values = keys_values.select(2, 1).transpose(1, 2);

  const std::int64_t batch = queries.size(0), heads = queries.size(1), width = queries.size(3);
  Sums sums{at::zeros({batch, heads, width, width}, queries.options()),
            at::zeros({batch, heads, width, 1}, queries.options())};
  if (memory > 0) sums.add(keys.narrow(2, 0, memory), values.narrow(2, 0, memory));
  std::vector<at::Tensor> results;
  for (std::int64_t first = 0; first < segment; first += kLinearBlock) {
    const std::int64_t count = std::min(kLinearBlock, segment - first);
    const at::Tensor query = queries.narrow(2, first, count);
    const at::Tensor key = keys.narrow(2, memory + first, count);
    const at::Tensor value = values.narrow(2, memory + first, count);
    const at::Tensor pairs = at::tril(at::matmul(query, key.transpose(2, 3)));
    const at::Tensor numerator = at::matmul(query, sums.values) + at::matmul(pairs, value);
    const at::Tensor denominator = at::matmul(query, sums.weights) + pairs.sum(3, true);
    results.push_back(numerator / (denominator + kSmallestSum));
    if (first + count < segment) sums.add(key, value);
  }
  return at::cat(results, 2).transpose(1, 2);
}

}  // namespace ql::nn
