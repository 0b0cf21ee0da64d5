// Linear attention over segments of more than one block, against all pairs at once.
#include "nn/linear_attention_internal.h"

#include <cmath>
#include <cstdint>

#include "nn_support.h"
#include "torch_doctest.h"

namespace ql {
namespace {

kernels::AttentionInput random_input(std::int64_t segment, std::int64_t memory) {
  const std::int64_t window = segment + memory;
  kernels::AttentionInput input;
  input.queries = at::randn({2, segment, 3, 5}, at::kDouble);
  input.keys_values = {at::randn({2, window, 2, 3, 5}, at::kDouble)};
  input.positions = at::randn({window, 3, 5}, at::kDouble);
  input.content_bias = at::randn({3, 5}, at::kDouble);
  input.position_bias = at::randn({3, 5}, at::kDouble);
  return input;
}

// Loops over queries, keys and features.
at::Tensor oracle(const kernels::AttentionInput& input, std::int64_t memory) {
  const auto q = input.queries.accessor<double, 4>();
  const auto kv = input.keys_values.front().accessor<double, 5>();
  const auto r = input.positions.accessor<double, 3>();
  const auto u = input.content_bias.accessor<double, 2>();
  const auto v = input.position_bias.accessor<double, 2>();
  const auto feature = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  const at::Tensor sums = at::zeros(input.queries.sizes(), at::kDouble);
  auto out = sums.accessor<double, 4>();
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    for (std::int64_t i = 0; i < q.size(1); ++i) {
      for (std::int64_t h = 0; h < q.size(2); ++h) {
        double total = 1e-6;
        for (std::int64_t j = 0; j <= memory + i; ++j) {
          double weight = 0;
          for (std::int64_t n = 0; n < q.size(3); ++n) {
            weight += feature(q[b][i][h][n] + u[h][n] + r[memory + i][h][n]) *
                      feature(kv[b][j][0][h][n] + v[h][n] + r[j][h][n]);
          }
          total += weight;
          for (std::int64_t n = 0; n < q.size(3); ++n) {
            out[b][i][h][n] += weight * kv[b][j][1][h][n];
          }
        }
        for (std::int64_t n = 0; n < q.size(3); ++n) {
          out[b][i][h][n] /= total;
        }
      }
    }
  }
  return sums;
}

}  // namespace

TEST_CASE("linear attention equals the loop over all pairs, in every block" *
          doctest::test_suite("numeric")) {
  at::manual_seed(1);
  for (const std::int64_t memory : {0, 1, 100}) {
    for (const std::int64_t segment : {1, 64, 65, 130}) {
      CAPTURE(memory);
      CAPTURE(segment);
      kernels::AttentionInput input = random_input(segment, memory);
      const at::Tensor expected = oracle(input, memory);
      CHECK(test::largest_difference(nn::linear_attention(input), expected) < 1e-10);
      for (at::Tensor* tensor : {&input.queries, &input.keys_values.front(), &input.positions,
                                 &input.content_bias, &input.position_bias}) {
        *tensor = tensor->to(at::kFloat);
      }
      CHECK(test::largest_difference(nn::linear_attention(input), expected) < 1e-4);
    }
  }
}

}  // namespace ql
