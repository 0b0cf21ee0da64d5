// Relative attention against a double loop with explicit distances.
#include "nn/attention.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "nn/dropout.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql {
namespace {

struct Shape {
  std::int64_t batch, segment, memory, heads, width;
};

// Segment 1, memory 0, memory shorter than, equal to and longer than the segment, window 1, widths
// around the kernel's unrolling, more streams than one group.
const Shape kShapes[] = {{1, 1, 0, 1, 1},  {2, 1, 5, 2, 3},  {2, 4, 0, 1, 4},  {3, 5, 2, 2, 5},
                         {2, 4, 4, 3, 8},  {1, 3, 9, 2, 16}, {19, 2, 3, 2, 7}, {9, 16, 16, 2, 32},
                         {1, 17, 1, 1, 2}, {2, 8, 24, 2, 33}};

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).set_requires_grad(true);
}

nn::AttentionInput random_input(const Shape& shape, bool with_mask) {
  const std::int64_t window = shape.segment + shape.memory;
  nn::AttentionInput input;
  input.queries = random({shape.batch, shape.segment, shape.heads, shape.width});
  input.keys_values = random({shape.batch, window, 2, shape.heads, shape.width});
  input.positions = random({window, shape.heads, shape.width});
  input.content_bias = random({shape.heads, shape.width});
  input.position_bias = random({shape.heads, shape.width});
  if (with_mask) {
    input.probability_mask =
        nn::dropout_mask({shape.batch, shape.heads, shape.segment, window}, 0.3, {true, 1, 2},
                         {nn::Place::kAttentionProbability}, at::kDouble);
  }
  return input;
}

std::vector<at::Tensor> leaves(const nn::AttentionInput& input) {
  return {input.queries, input.keys_values, input.positions, input.content_bias,
          input.position_bias};
}

// Every number by its definition: for each stream, head and query the keys one by one, their
// distance counted in window positions.
at::Tensor attention_oracle(const Shape& shape, const nn::AttentionInput& input) {
  const auto q = input.queries.accessor<double, 4>();
  const auto kv = input.keys_values.accessor<double, 5>();
  const auto r = input.positions.accessor<double, 3>();
  const auto u = input.content_bias.accessor<double, 2>();
  const auto v = input.position_bias.accessor<double, 2>();
  const std::int64_t window = shape.segment + shape.memory;
  at::Tensor sums = at::zeros({shape.batch, shape.segment, shape.heads, shape.width}, at::kDouble);
  auto out = sums.accessor<double, 4>();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t i = 0; i < shape.segment; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = 0; j < window; ++j) {
          const std::int64_t distance = shape.memory + i - j;
          if (distance < 0) {
            weights.push_back(0);
            continue;
          }
          double score = 0;
          for (std::int64_t n = 0; n < shape.width; ++n) {
            score += (q[b][i][h][n] + u[h][n]) * kv[b][j][0][h][n];
            score += (q[b][i][h][n] + v[h][n]) * r[window - 1 - distance][h][n];
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(shape.width))));
          sum += weights.back();
        }
        for (std::int64_t j = 0; j < window; ++j) {
          double weight = weights[static_cast<std::size_t>(j)] / sum;
          if (input.probability_mask.defined()) {
            weight *= input.probability_mask.accessor<double, 4>()[b][h][i][j];
          }
          for (std::int64_t n = 0; n < shape.width; ++n) {
            out[b][i][h][n] += weight * kv[b][j][1][h][n];
          }
        }
      }
    }
  }
  return sums;
}

std::vector<at::Tensor> gradients(const nn::AttentionInput& input, const at::Tensor& sums,
                                  const at::Tensor& factors) {
  (sums * factors).sum().backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& leaf : leaves(input)) {
    result.push_back(leaf.grad().clone());
    leaf.mutable_grad() = at::Tensor();
  }
  return result;
}

}  // namespace

TEST_CASE("attention equals the double loop") {
  at::manual_seed(1);
  for (const Shape& shape : kShapes) {
    for (const bool with_mask : {false, true}) {
      CAPTURE(shape.segment);
      CAPTURE(shape.memory);
      const nn::AttentionInput input = random_input(shape, with_mask);
      const at::Tensor expected = attention_oracle(shape, input);
      CHECK(test::largest_difference(nn::relative_attention(input), expected) < 1e-10);
      CHECK(test::largest_difference(nn::attention_of_operations(input), expected) < 1e-10);
      const at::NoGradGuard no_grad;
      CHECK(test::largest_difference(nn::relative_attention(input), expected) < 1e-10);
    }
  }
}

TEST_CASE("attention's own gradients equal those of ATen's operations") {
  at::manual_seed(2);
  for (const Shape& shape : kShapes) {
    for (const bool with_mask : {false, true}) {
      CAPTURE(shape.segment);
      CAPTURE(shape.memory);
      const nn::AttentionInput input = random_input(shape, with_mask);
      const at::Tensor factors = at::randn_like(input.queries);
      const auto expected = gradients(input, nn::attention_of_operations(input), factors);
      const auto found = gradients(input, nn::relative_attention(input), factors);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        CHECK((found[i].sizes() == expected[i].sizes()));
        CHECK(test::largest_difference(found[i], expected[i]) < 1e-10);
      }
    }
  }
}

TEST_CASE("attention in float32 stays close to float64") {
  at::manual_seed(3);
  const Shape shape{3, 16, 48, 2, 32};
  const nn::AttentionInput input = random_input(shape, true);
  nn::AttentionInput narrow = input;
  for (at::Tensor* tensor : {&narrow.queries, &narrow.keys_values, &narrow.positions,
                             &narrow.content_bias, &narrow.position_bias}) {
    *tensor = tensor->detach().to(at::kFloat).set_requires_grad(true);
  }
  narrow.probability_mask = input.probability_mask.to(at::kFloat);
  const at::Tensor expected = nn::relative_attention(input);
  const at::Tensor found = nn::relative_attention(narrow);
  CHECK((found.scalar_type() == at::kFloat));
  CHECK(test::largest_difference(found, expected) < 1e-4);
  const at::Tensor factors = at::randn_like(input.queries);
  const auto wide = gradients(input, expected, factors);
  const auto close = gradients(narrow, found, factors.to(at::kFloat));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    CHECK(test::largest_difference(close[i], wide[i]) < 1e-3);
  }
}

TEST_CASE("attention does not depend on the number of threads") {
  at::manual_seed(4);
  const Shape shape{21, 4, 8, 2, 8};
  const nn::AttentionInput input = random_input(shape, true);
  const at::Tensor factors = at::randn_like(input.queries);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor expected = nn::relative_attention(input);
  const auto expected_gradients = gradients(input, expected, factors);
  at::set_num_threads(3);
  const at::Tensor found = nn::relative_attention(input);
  const auto found_gradients = gradients(input, found, factors);
  at::set_num_threads(threads);
  CHECK(at::equal(found, expected));
  for (std::size_t i = 0; i < expected_gradients.size(); ++i) {
    CHECK(at::equal(found_gradients[i], expected_gradients[i]));
  }
}

}  // namespace ql
