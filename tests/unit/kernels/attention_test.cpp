// Compares relative attention by our own kernel with that by ATen's operations, which step_test.cpp
// compares with the network on one page.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_problem.h"
#include "kernels/product.h"
#include "unit/float32_error.h"
#include "unit/torch_doctest.h"

namespace ql::kernels {
namespace {

struct Shape {
  std::int64_t batch, segment, memory, heads, width;
};

// Among the shapes are segment 1, memory 0, memory shorter than, equal to and longer than the
// segment, window 1, widths around the kernel's panels, and more streams than one group.
const Shape kShapes[] = {{1, 1, 0, 1, 1},  {2, 1, 5, 2, 3},   {2, 4, 0, 1, 4},   {3, 5, 2, 2, 5},
                         {2, 4, 4, 3, 8},  {1, 3, 9, 2, 16},  {19, 2, 3, 2, 7},  {9, 16, 16, 2, 32},
                         {1, 17, 1, 1, 2}, {2, 8, 24, 2, 33}, {1, 61, 20, 3, 5}, {2, 50, 0, 2, 3}};

// These have more queries or keys than one tile, or lie at a limit (kShortWindow, kTileKeys). The
// last one has several parts of the queries.
const Shape kLongShapes[] = {{1, 131, 1000, 2, 3}, {2, 230, 290, 1, 17}, {1, 118, 390, 1, 3},
                             {1, 40, 1200, 2, 5},  {1, 4, 1000, 2, 16},  {1, 3, 62, 1, 4},
                             {1, 12, 500, 1, 4},   {1, 13, 500, 1, 4},   {1, 1030, 3, 2, 2}};
const Shape& kSeveralParts = *std::rbegin(kLongShapes);

// Returns the short shapes, and some random ones.
std::vector<Shape> shapes() {
  std::vector<Shape> all(std::begin(kShapes), std::end(kShapes));
  std::mt19937 generator(17);
  const auto up_to = [&generator](std::int64_t most) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint32_t>(most + 1));
  };
  for (int i = 0; i < 12; ++i) {
    const std::int64_t batch = 1 + up_to(9), segment = 1 + up_to(20), memory = up_to(30);
    const std::int64_t heads = 1 + up_to(3), width = 1 + up_to(40);
    all.push_back({batch, segment, memory, heads, width});
  }
  return all;
}

std::vector<Shape> all_shapes() {
  std::vector<Shape> all = shapes();
  all.insert(all.end(), std::begin(kLongShapes), std::end(kLongShapes));
  return all;
}

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).set_requires_grad(true);
}

// Selects which of the keys a query sees, and what an input may lack.
enum class Kind {
  kWhole,
  kMasked,
  kWindow,
  kDilated,
  kDilatedMasked,
  kWithoutBias,
  kContentOnly,
  kDilatedContent,
  kFarDilated,
  kSeesAll
};
constexpr Kind kKinds[] = {Kind::kWhole,       Kind::kMasked,         Kind::kWindow,
                           Kind::kDilated,     Kind::kDilatedMasked,  Kind::kWithoutBias,
                           Kind::kContentOnly, Kind::kDilatedContent, Kind::kFarDilated,
                           Kind::kSeesAll};

AttentionInput random_input(const Shape& shape, Kind kind) {
  const std::int64_t window = shape.segment + shape.memory;
  AttentionInput input;
  input.queries = random({shape.batch, shape.segment, shape.heads, shape.width});
  input.sees_all = kind == Kind::kSeesAll;
  // There may be fewer keys than queries then.
  const std::int64_t keys = input.sees_all ? shape.memory + 1 : window;
  input.keys_values = {random({shape.batch, keys, 2, shape.heads, shape.width})};
  const bool content_only =
      kind == Kind::kContentOnly || kind == Kind::kDilatedContent || kind == Kind::kSeesAll;
  if (!content_only) input.positions = random({window, shape.heads, shape.width});
  if (!content_only && kind != Kind::kWithoutBias) {
    input.content_bias = random({shape.heads, shape.width});
    input.position_bias = random({shape.heads, shape.width});
  }
  if (kind == Kind::kWindow) input.reach.span = 3;
  if (kind == Kind::kDilated || kind == Kind::kDilatedMasked || kind == Kind::kDilatedContent ||
      kind == Kind::kFarDilated) {
    input.reach.span = 4;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      // Beyond the window, too.
      const std::int64_t far = shape.segment > 1000 ? 2000 : 30;
      input.reach.dilations.push_back(1 + (kind == Kind::kFarDilated ? far : 2) * head);
    }
  }
  if (kind == Kind::kMasked || kind == Kind::kDilatedMasked) {
    input.dropout = {{7, 3, 5}, 1000, 20000};
    input.queries_per_mask = shape.segment % 2 == 0 ? 2 : 1;
  }
  return input;
}

std::vector<at::Tensor> leaves(const AttentionInput& input) {
  std::vector<at::Tensor> all = {input.queries, input.keys_values.front()};
  for (const at::Tensor& optional : {input.positions, input.content_bias, input.position_bias}) {
    if (optional.defined() && optional.requires_grad()) all.push_back(optional);
  }
  return all;
}

std::vector<at::Tensor> gradients(const AttentionInput& input, const at::Tensor& sums,
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

TEST_CASE("attention_usage: is what a value of one key, zero elsewhere, adds on average") {
  at::manual_seed(5);
  for (const Shape& shape : shapes()) {
    for (const Kind kind : {Kind::kMasked, Kind::kDilated}) {
      AttentionInput input = random_input(shape, kind);
      const at::Tensor usage = attention_usage(input);
      CHECK(!usage.requires_grad());
      const std::int64_t window = shape.segment + shape.memory;
      REQUIRE((usage.sizes() == at::IntArrayRef{shape.batch, window}));
      input.dropout = {};  // usage is that before dropout
      for (std::int64_t key = 0; key < window; ++key) {
        at::Tensor& keys_values = input.keys_values.front();
        keys_values = keys_values.detach().clone();
        keys_values.select(2, 1).zero_();
        keys_values.select(2, 1).select(1, key).fill_(1);
        const at::Tensor expected =
            attention_of_operations(input).detach().mean(at::IntArrayRef{1, 2, 3});
        CHECK(test::largest_difference(usage.select(1, key), expected) < 1e-12);
      }
    }
  }
}

TEST_CASE("relative_attention: the sums of the definition, one key after the other") {
  at::manual_seed(7);
  const Shape shape{2, 5, 4, 2, 3};
  for (const Kind kind : {Kind::kWhole, Kind::kDilated, Kind::kFarDilated}) {
    const AttentionInput input = random_input(shape, kind);
    const at::Tensor found = relative_attention(input).detach();
    const auto queries = input.queries.accessor<double, 4>();
    const auto keys_values = input.keys_values.front().accessor<double, 5>();
    const auto positions = input.positions.accessor<double, 3>();
    const auto u = input.content_bias.accessor<double, 2>();
    const auto v = input.position_bias.accessor<double, 2>();
    for (std::int64_t stream = 0; stream < shape.batch; ++stream) {
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const auto index = static_cast<std::size_t>(head);
        const std::int64_t step = input.reach.dilations.empty() ? 1 : input.reach.dilations[index];
        for (std::int64_t query = 0; query < shape.segment; ++query) {
          double sum = 0;
          std::vector<double> values(3);
          for (std::int64_t key = 0; key <= shape.memory + query; ++key) {
            const std::int64_t distance = shape.memory + query - key;
            const bool far = kind != Kind::kWhole && distance >= 4 * step;
            if (distance % step != 0 || far) continue;
            double score = 0;
            for (std::int64_t n = 0; n < shape.width; ++n) {
              const double element = queries[stream][query][head][n];
              score += (element + u[head][n]) * keys_values[stream][key][0][head][n];
              // Row 8 of the window of 9 is distance 0.
              score += (element + v[head][n]) * positions[8 - distance][head][n];
            }
            const double weight = std::exp(score / std::sqrt(3.0));
            sum += weight;
            for (std::size_t n = 0; n < values.size(); ++n) {
              const auto column = static_cast<std::int64_t>(n);
              values[n] += weight * keys_values[stream][key][1][head][column];
            }
          }
          for (std::int64_t n = 0; n < shape.width; ++n) {
            CHECK(found[stream][query][head][n].item<double>() ==
                  doctest::Approx(values[static_cast<std::size_t>(n)] / sum));
          }
        }
      }
    }
  }
}

TEST_CASE("relative_attention: output and gradients equal those of ATen's operations" *
          doctest::test_suite("numeric")) {
  at::manual_seed(2);
  for (const Shape& shape : all_shapes()) {
    for (const Kind kind : kKinds) {
      CAPTURE(shape.segment);
      CAPTURE(shape.memory);
      const AttentionInput input = random_input(shape, kind);
      const at::Tensor factors = at::randn_like(input.queries);
      const at::Tensor sums = attention_of_operations(input),
                       found_sums = relative_attention(input);
      CHECK(test::largest_difference(found_sums, sums) < 1e-10);
      {
        const at::NoGradGuard no_grad;
        CHECK(test::largest_difference(relative_attention(input), sums) < 1e-10);
      }
      const auto expected = gradients(input, sums, factors);
      const auto found = gradients(input, found_sums, factors);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        CHECK((found[i].sizes() == expected[i].sizes()));
        CHECK(test::largest_difference(found[i], expected[i]) < 1e-10);
      }
    }
  }
}

TEST_CASE("relative_attention: gradients equal finite differences" *
          doctest::test_suite("numeric")) {
  at::manual_seed(9);
  // A window that keeps its probabilities, one tile, and several tiles.
  for (const Shape& shape :
       {Shape{2, 5, 9, 2, 3}, Shape{2, 7, 83, 2, 5}, Shape{1, 53, 541, 1, 3}}) {
    for (const Kind kind : kKinds) {
      CAPTURE(shape.memory);
      const AttentionInput input = random_input(shape, kind);
      const at::Tensor factors = at::randn_like(input.queries);
      const auto found = gradients(input, relative_attention(input), factors);
      const std::vector<at::Tensor> inputs = leaves(input);
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        CAPTURE(i);
        constexpr double kStep = 1e-5;
        const at::Tensor direction = at::randn_like(inputs[i]);
        const auto value = [&](double step) {
          inputs[i].add_(direction, step);
          return (relative_attention(input) * factors).sum().item<double>();
        };
        const double after = value(kStep), before = value(-2 * kStep);
        value(kStep);
        const double slope = (found[i] * direction).sum().item<double>();
        CHECK((after - before) / (2 * kStep) == doctest::Approx(slope).epsilon(1e-6).scale(1));
      }
    }
  }
}

TEST_CASE("attention_forward: every vector version gives the same") {
  at::manual_seed(6);
  const at::NoGradGuard no_grad;
  for (const Shape& shape : all_shapes()) {
    for (const Kind kind : kKinds) {
      const AttentionInput input = random_input(shape, kind);
      const at::Tensor factors = at::randn_like(input.queries);
      constexpr auto kPortable = machine::VectorVersion::kPortable;
      const AttentionResult expected = attention_forward(input, true, kPortable);
      const AttentionGradients gradients = attention_backward(input, expected, factors, kPortable);
      for (const auto version : {machine::VectorVersion::kAvx2, machine::VectorVersion::kAvx512}) {
        if (!machine::has_vector_version(version)) continue;
        const AttentionResult found = attention_forward(input, true, version);
        CHECK(test::largest_difference(found.sums, expected.sums) < 1e-12);
        const AttentionGradients others = attention_backward(input, found, factors, version);
        CHECK(test::largest_difference(others.queries, gradients.queries) < 1e-12);
        CHECK(test::largest_difference(others.keys_values, gradients.keys_values) < 1e-12);
        if (gradients.positions.defined()) {
          CHECK(test::largest_difference(others.positions, gradients.positions) < 1e-11);
        }
        if (input.content_bias.defined()) {
          CHECK(test::largest_difference(others.content_bias, gradients.content_bias) < 1e-11);
          CHECK(test::largest_difference(others.position_bias, gradients.position_bias) < 1e-11);
        }
      }
    }
  }
}

TEST_CASE("relative_attention: float32 is as exact as ATen's operations" *
          doctest::test_suite("numeric")) {
  at::manual_seed(3);
  const Shape few{3, 16, 48, 2, 32}, some{1, 40, 700, 2, 20}, many{1, 70, 1000, 2, 32};
  std::vector<std::pair<Shape, Kind>> cases = {{few, Kind::kMasked}, {many, Kind::kMasked}};
  for (const Kind kind : kKinds) cases.emplace_back(some, kind);
  for (const auto& [shape, kind] : cases) {
    const AttentionInput input = random_input(shape, kind);
    test::Tensors inputs = leaves(input);
    inputs.push_back(at::randn_like(input.queries));
    // Returns the sums and their gradients in the order of leaves().
    const auto run = [&input](const test::Tensors& from, auto attention) {
      AttentionInput own = input;
      std::size_t next = 0;
      for (at::Tensor* tensor : {&own.queries, &own.keys_values.front(), &own.positions,
                                 &own.content_bias, &own.position_bias}) {
        if (!tensor->defined()) continue;
        if (tensor->requires_grad()) {
          *tensor = from[next++].detach().clone().set_requires_grad(true);
        } else {
          *tensor = tensor->to(from[0].scalar_type());
        }
      }
      test::Tensors results = {attention(own)};
      for (const at::Tensor& gradient : gradients(own, results.front(), from[next])) {
        results.push_back(gradient);
      }
      return results;
    };
    test::check_float32(
        inputs, [&](const test::Tensors& from) { return run(from, relative_attention); },
        [&](const test::Tensors& from) { return run(from, attention_of_operations); });
  }
}

TEST_CASE("relative_attention: a window may come in parts, of streams that overlap") {
  at::manual_seed(5);
  const at::NoGradGuard no_grad;
  const Shape shape{6, 4, 9, 2, 8};
  for (const Kind kind : kKinds) {
    AttentionInput input = random_input(shape, kind);
    const at::Tensor own = input.keys_values.front().narrow(1, 0, 4).contiguous();
    const at::Tensor stream = at::randn({6 + 4, 2, 2, 8}, at::kDouble);
    const at::Tensor memory = stream.unfold(0, 5, 1).movedim(-1, 1);  // of 6 streams, one apart
    const at::Tensor oldest = at::randn({6, 4, 2, 2, 8}, at::kDouble);
    input.keys_values = {at::cat({oldest, memory, own}, 1)};
    const at::Tensor expected = attention_of_operations(input);
    input.keys_values = {oldest, memory, own};
    CHECK(input.window() == 13);
    CHECK(test::largest_difference(relative_attention(input), expected) < 1e-10);
    CHECK(test::largest_difference(attention_of_operations(input), expected) < 1e-10);
  }
}

TEST_CASE("relative_attention: large scores, of which later tiles have larger ones") {
  at::manual_seed(11);
  AttentionInput input = random_input({1, 30, 1500, 2, 8}, Kind::kMasked);
  {
    const at::NoGradGuard no_grad;
    input.queries.mul_(300);
    input.keys_values.front().mul_(at::linspace(0.1, 10, 1530, at::kDouble).view({1, -1, 1, 1, 1}));
  }
  const at::Tensor factors = at::randn_like(input.queries);
  const at::Tensor sums = attention_of_operations(input), found_sums = relative_attention(input);
  CHECK(test::largest_difference(found_sums, sums) < 1e-10);
  const auto expected = gradients(input, sums, factors);
  const auto found = gradients(input, found_sums, factors);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(test::largest_difference(found[i], expected[i]) < 1e-9);
  }
}

TEST_CASE("attention_forward: batch-invariant results do not depend on other streams") {
  at::manual_seed(12);
  const at::NoGradGuard no_grad;
  const BatchInvariant batch_invariant;
  AttentionInput input = random_input({8, 1024, 0, 1, 8}, Kind::kWithoutBias);
  input.queries = input.queries.to(at::kFloat);
  input.keys_values.front() = input.keys_values.front().to(at::kFloat);
  input.positions = input.positions.to(at::kFloat);
  const at::Tensor together = attention_forward(input, false).sums.narrow(0, 3, 1);
  input.queries = input.queries.narrow(0, 3, 1).contiguous();
  input.keys_values.front() = input.keys_values.front().narrow(0, 3, 1).contiguous();
  CHECK(at::equal(attention_forward(input, false).sums, together));
}

TEST_CASE("relative_attention: results do not depend on the number of threads") {
  at::manual_seed(4);
  for (const Shape& shape : {Shape{21, 16, 40, 4, 32}, kSeveralParts}) {
    const AttentionInput input = random_input(shape, Kind::kMasked);
    const at::Tensor factors = at::randn_like(input.queries);
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor expected = relative_attention(input);
    const auto expected_gradients = gradients(input, expected, factors);
    at::set_num_threads(3);
    const at::Tensor found = relative_attention(input);
    const auto found_gradients = gradients(input, found, factors);
    at::set_num_threads(threads);
    CHECK(at::equal(found, expected));
    for (std::size_t i = 0; i < expected_gradients.size(); ++i) {
      CHECK(at::equal(found_gradients[i], expected_gradients[i]));
    }
  }
}

namespace {

at::Tensor rounded(const at::Tensor& tensor) { return tensor.to(at::kBFloat16).to(at::kDouble); }

// Returns the input in float32.
AttentionInput as_floats(AttentionInput input) {
  for (at::Tensor* tensor : {&input.queries, &input.keys_values.front(), &input.positions,
                             &input.content_bias, &input.position_bias}) {
    if (tensor->defined()) *tensor = tensor->to(at::kFloat);
  }
  return input;
}

// Returns attention_forward()'s sums, and the gradients of queries, keys and values, positions and
// biases for the gradient `factors` of the sums, in float64 with the operands of all products
// rounded. The input must have the kind kMasked, and a batch of 1.
test::Tensors rounded_attention(const AttentionInput& input, const at::Tensor& factors) {
  const std::int64_t segment = input.queries.size(1), window = input.window();
  const std::int64_t memory = window - segment, heads = input.queries.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(input.queries.size(3)));
  const at::Tensor kept =
      draw_kept(input.dropout, {1, heads, segment / input.queries_per_mask, window}, at::kCPU)
          .repeat_interleave(input.queries_per_mask, 2)
          .to(at::kDouble) *
      input.dropout.factor();
  test::Tensors results;
  for (const at::Tensor& like : {input.queries, input.queries, input.keys_values.front(),
                                 input.positions, input.content_bias, input.position_bias}) {
    results.push_back(at::zeros(like.sizes(), at::kDouble));
  }
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto of_head = [head](const at::Tensor& tensor) {
      return tensor.detach().select(-2, head).to(at::kDouble);
    };
    const at::Tensor queries = of_head(input.queries)[0], states = of_head(input.keys_values[0])[0];
    const at::Tensor keys = rounded(states.select(1, 0)), values = rounded(states.select(1, 1));
    const at::Tensor table = rounded(of_head(input.positions));
    const at::Tensor for_content = queries + of_head(input.content_bias.unsqueeze(0))[0];
    const at::Tensor for_position = queries + of_head(input.position_bias.unsqueeze(0))[0];
    const at::Tensor by_row = rounded(for_position * scale).mm(table.t());
    at::Tensor scores = rounded(for_content * scale).mm(keys.t());
    for (std::int64_t i = 0; i < segment; ++i) {
      const std::int64_t seen = memory + i + 1;
      scores[i].narrow(0, 0, seen) += by_row[i].narrow(0, window - seen, seen);
      if (seen < window) scores[i].narrow(0, seen, window - seen).fill_(-1e300);
    }
    const at::Tensor probabilities = scores.softmax(1), weights = probabilities * kept[0][head];
    const at::Tensor gradient = of_head(factors)[0];
    const at::Tensor of_weights = rounded(gradient).mm(values.t()) * kept[0][head];
    const at::Tensor mean = (probabilities * of_weights).sum(1, true);
    const at::Tensor of_scores = rounded(probabilities * (of_weights - mean) * scale);
    results[0].select(2, head)[0].copy_(rounded(weights).mm(values));
    const at::Tensor by_content = of_scores.mm(keys);
    at::Tensor by_position = at::zeros_like(by_content);
    for (std::int64_t i = 0; i < segment; ++i) {
      const std::int64_t seen = memory + i + 1;
      const at::Tensor row = of_scores[i].narrow(0, 0, seen);
      by_position[i] = row.unsqueeze(0).mm(table.narrow(0, window - seen, seen))[0];
      results[3].select(1, head).narrow(0, window - seen, seen) +=
          row.unsqueeze(1) * rounded(for_position[i]).unsqueeze(0);
    }
    results[1].select(2, head)[0].copy_(by_content + by_position);
    results[2].select(3, head)[0].select(1, 0).copy_(of_scores.t().mm(rounded(for_content)));
    results[2].select(3, head)[0].select(1, 1).copy_(rounded(weights).t().mm(rounded(gradient)));
    results[4][head].copy_(by_content.sum(0));
    results[5][head].copy_(by_position.sum(0));
  }
  return results;
}

}  // namespace

TEST_CASE("attention_forward: rounds the operands of all products, and nothing else" *
          doctest::test_suite("numeric")) {
  at::manual_seed(8);
  const at::NoGradGuard no_grad;
  // The windows of the last shapes have several tiles. Their weights are rounded before they are
  // divided by the total, and the gradients read the sums of these weights.
  for (const Shape& shape :
       {Shape{1, 12, 60, 2, 16}, Shape{1, 61, 80, 1, 33}, Shape{1, 98, 100, 3, 7},
        Shape{1, 70, 900, 2, 20}, Shape{1, 203, 900, 2, 20}, Shape{1, 1030, 3, 2, 17}}) {
    CAPTURE(shape.segment);
    AttentionInput input = as_floats(random_input(shape, Kind::kMasked));
    const at::Tensor factors = at::randn_like(input.queries);
    const auto run = [&](bool rounds, machine::VectorVersion version) {
      input.rounds = rounds;
      const AttentionResult result = attention_forward(input, true, version);
      const AttentionGradients found = attention_backward(input, result, factors, version);
      return test::Tensors{result.sums,     found.queries,      found.keys_values,
                           found.positions, found.content_bias, found.position_bias};
    };
    const test::Tensors expected = rounded_attention(input, factors);
    const test::Tensors exact = run(false, machine::vector_version());
    const auto error = [&](const test::Tensors& found, std::size_t i) {
      return ((found[i].to(at::kDouble) - expected[i]).norm() / expected[i].norm()).item<double>();
    };
    for (const auto version : {machine::VectorVersion::kPortable, machine::VectorVersion::kAvx2,
                               machine::VectorVersion::kAvx512}) {
      if (!machine::has_vector_version(version)) continue;
      const test::Tensors found = run(true, version);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        // Both round a few elements differently that lie between two values of bfloat16.
        CHECK(error(found, i) <
              (shape.segment + shape.memory > attention::kTileKeys ? 6e-3 : 5e-4));
        CHECK(error(exact, i) > 1.5e-3);
        CHECK(((found[i] - exact[i]).norm() / exact[i].norm()).item<double>() > 1.5e-3);
      }
    }
  }
}

TEST_CASE("attention_forward: short windows of bfloat16 are those of their numbers in float32") {
  at::manual_seed(10);
  const at::NoGradGuard no_grad;
  for (const Shape& shape : all_shapes()) {
    for (const Kind kind : kKinds) {
      AttentionInput input = as_floats(random_input(shape, kind));
      if (!is_short(input)) continue;
      at::Tensor& keys_values = input.keys_values.front();
      keys_values = keys_values.to(at::kBFloat16);
      AttentionInput wide = input;
      wide.keys_values.front() = keys_values.to(at::kFloat);
      // The streams of a part may lie in a longer tensor.
      AttentionInput part = input;
      part.keys_values.front() = at::constant_pad_nd(keys_values, {0, 0, 0, 0, 0, 0, 2, 1}, 1)
                                     .narrow(1, 2, keys_values.size(1));
      // Keys and values may come in several parts.
      AttentionInput parts = input, wide_parts = wide;
      const std::int64_t keys = keys_values.size(1), older = keys / 2;
      for (AttentionInput* of : {&parts, &wide_parts}) {
        const at::Tensor all = of->keys_values.front();
        of->keys_values = {all.narrow(1, 0, older), all.narrow(1, older, keys - older)};
      }
      CHECK(at::equal(attention_probabilities(input), attention_probabilities(wide)));
      const at::Tensor factors = at::randn_like(input.queries);
      for (const auto version : {machine::VectorVersion::kPortable, machine::VectorVersion::kAvx2,
                                 machine::VectorVersion::kAvx512}) {
        if (!machine::has_vector_version(version)) continue;
        const AttentionResult expected = attention_forward(wide, true, version);
        const AttentionResult found = attention_forward(input, true, version);
        CHECK(at::equal(found.sums, expected.sums));
        CHECK(at::equal(attention_forward(part, true, version).sums, expected.sums));
        CHECK(at::equal(attention_forward(parts, false, version).sums,
                        attention_forward(wide_parts, false, version).sums));
        const AttentionGradients of_wide = attention_backward(wide, expected, factors, version);
        const AttentionGradients of_input = attention_backward(input, found, factors, version);
        CHECK(at::equal(of_input.keys_values, of_wide.keys_values.to(at::kBFloat16)));
        CHECK(at::equal(of_input.queries, of_wide.queries));
        if (of_wide.positions.defined()) CHECK(at::equal(of_input.positions, of_wide.positions));
        if (of_wide.content_bias.defined()) {
          CHECK(at::equal(of_input.content_bias, of_wide.content_bias));
          CHECK(at::equal(of_input.position_bias, of_wide.position_bias));
        }
      }
    }
  }
  // Longer windows and segments have keys of float32. relative_attention() widens them.
  for (AttentionInput input :
       {as_floats(random_input({1, 2, kShortWindow - 1, 1, 4}, Kind::kWhole)),
        as_floats(random_input(kSeveralParts, Kind::kSeesAll))}) {
    AttentionInput rounded_keys = input;
    rounded_keys.keys_values.front() = input.keys_values.front().to(at::kBFloat16);
    CHECK_THROWS_AS(attention_forward(rounded_keys, false), std::logic_error);
    input.keys_values.front() = rounded_keys.keys_values.front().to(at::kFloat);
    CHECK(at::equal(relative_attention(rounded_keys), relative_attention(input)));
  }
}

TEST_CASE("attention_backward: a common offset of the values changes rounded gradients little") {
  at::manual_seed(13);
  const at::NoGradGuard no_grad;
  for (const std::int64_t memory : {400, 900}) {
    CAPTURE(memory);
    AttentionInput input = random_input({1, 70, memory, 2, 20}, Kind::kWithoutBias);
    for (at::Tensor* tensor : {&input.queries, &input.keys_values.front(), &input.positions}) {
      *tensor = tensor->to(at::kFloat);
    }
    const at::Tensor factors = at::randn_like(input.queries);
    const auto run = [&](bool rounds) {
      input.rounds = rounds;
      return attention_backward(input, attention_forward(input, true), factors);
    };
    const AttentionGradients without = run(false);
    input.keys_values.front().select(2, 1).add_(8);
    const AttentionGradients found = run(true);
    const auto error = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a - b).norm() / b.norm()).item<double>();
    };
    CHECK(error(found.queries, without.queries) < 0.02);
    CHECK(error(found.keys_values.select(2, 0), without.keys_values.select(2, 0)) < 0.02);
  }
}

TEST_CASE("relative_attention: rounds in both passes where this saves time") {
  at::manual_seed(14);
  AttentionInput input = random_input({1, 20, 100, 2, 16}, Kind::kMasked);
  for (at::Tensor* tensor : {&input.queries, &input.keys_values.front(), &input.positions,
                             &input.content_bias, &input.position_bias}) {
    *tensor = tensor->detach().to(at::kFloat).set_requires_grad(true);
  }
  const at::Tensor factors = at::randn_like(input.queries);
  input.rounds = true;
  const at::Tensor sums = relative_attention(input);
  const test::Tensors found = gradients(input, sums, factors);
  const at::NoGradGuard no_grad;
  input.rounds = QL_NATIVE_PAIRS != 0;
  const AttentionResult result = attention_forward(input, true);
  const AttentionGradients expected = attention_backward(input, result, factors);
  CHECK(at::equal(sums, result.sums));
  CHECK(at::equal(found[0], expected.queries));
  CHECK(at::equal(found[1], expected.keys_values));
  CHECK(at::equal(found[2], expected.positions));
  input.rounds = !input.rounds;
  CHECK(!at::equal(sums, attention_forward(input, true).sums));
}

}  // namespace ql::kernels
