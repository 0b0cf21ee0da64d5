// Compares kernels whose products take operands of bfloat16 with an oracle in float64 that rounds
// in the same places.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "kernels/attention.h"
#include "kernels/feed_forward.h"
#include "kernels/product.h"
#include "kernels/projection.h"
#include "kernels/row_kernels.h"
#include "kernels/softmax.h"
#include "kernels/softmax_blocks.h"
#include "machine/threads.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"

namespace ql::test {
namespace {

at::Tensor rounded(const at::Tensor& tensor) {
  return tensor.to(at::kBFloat16).to(tensor.scalar_type());
}

// Sums of products of such values are exact in float32 and in float64. So both round to the same
// bfloat16 values, which cannot hold all of them.
at::Tensor whole_numbers(at::IntArrayRef shape, std::int64_t largest) {
  return at::randint(-largest, largest + 1, shape, at::kDouble);
}

at::Tensor as_floats(const at::Tensor& tensor) {
  return tensor.to(at::kFloat).detach().requires_grad_();
}

bool is_close(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  const at::Tensor difference = (found.detach().to(at::kDouble) - expected).abs();
  return (difference <= tolerance * expected.abs().max()).all().item<bool>();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
}

constexpr double kLastDigits = 1e-6;

}  // namespace

TEST_CASE("feed_forward: rounds its operands and inner states" * doctest::test_suite("numeric")) {
  at::manual_seed(1);
  const at::Tensor states = whole_numbers({70, 8}, 300), gradient = whole_numbers({70, 8}, 300);
  const at::Tensor inner_weight = whole_numbers({19, 8}, 3),
                   outer_weight = whole_numbers({8, 19}, 300);
  const at::Tensor bias = whole_numbers({19}, 300);
  const std::vector<at::Tensor> inputs = {as_floats(states), as_floats(inner_weight),
                                          as_floats(bias), as_floats(outer_weight)};
  const kernels::RoundedWeights inner(inputs[1]), outer(inputs[3]);
  const at::Tensor output = kernels::feed_forward(inputs[0], inputs[1], inputs[2], inputs[3], {});
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({output}, inputs, {gradient.to(at::kFloat)});

  const at::Tensor x = rounded(states), v = rounded(outer_weight), g = rounded(gradient);
  const at::Tensor inner_product = at::mm(x, inner_weight.t()), by_hidden = at::mm(g, v);
  const at::Tensor hidden = rounded(at::relu(rounded(inner_product) + bias));
  const at::Tensor slopes = at::where(hidden > 0, rounded(by_hidden), at::zeros_like(hidden));
  CHECK_FALSE(at::equal(hidden, rounded(at::relu(inner_product + bias))));
  CHECK_FALSE(at::equal(rounded(by_hidden), by_hidden));
  CHECK(is_close(output, at::mm(hidden, v.t()), kLastDigits));
  CHECK(is_close(gradients[0], at::mm(slopes, inner_weight), kLastDigits));
  CHECK(is_close(gradients[1], at::mm(slopes.t(), x), kLastDigits));
  CHECK(is_close(gradients[2], slopes.sum(0), kLastDigits));
  CHECK(is_close(gradients[3], at::mm(g.t(), hidden), kLastDigits));
  at::Tensor of_floats = at::ones({2, 3});
  CHECK_THROWS_AS(kernels::relu_rows_gradient(of_floats, of_floats.to(at::kBFloat16), 1),
                  std::logic_error);
}

namespace {

// Returns the values that project_window() gives to keys, values and their gradient.
at::Tensor as_keys(const at::Tensor& tensor) {
  return tensor.size(1) <= kernels::kShortWindow ? rounded(tensor) : tensor;
}

void check_window(std::int64_t length) {
  CAPTURE(length);
  const std::int64_t batch = 3, segment = 2, width = 6, heads = 2, d_heads = 8;
  const at::Tensor window = whole_numbers({batch, length, width}, 300);
  const at::Tensor net = whole_numbers({3 * d_heads, width}, 300);
  const at::Tensor by_queries = whole_numbers({batch, segment, heads, d_heads / heads}, 300);
  const at::Tensor by_others = whole_numbers({batch, length, 2, heads, d_heads / heads}, 300);
  const std::vector<at::Tensor> inputs = {as_floats(window.narrow(1, length - segment, segment)),
                                          as_floats(net)};
  const kernels::RoundedWeights copies_of_weight(inputs.back());
  const kernels::QueriesKeysValues found = kernels::project_window(
      inputs[0], window.to(at::kFloat), at::Tensor(), at::Tensor(), inputs[1], heads);
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({found.queries, found.keys_values}, inputs,
                            {by_queries.to(at::kFloat), as_keys(by_others).to(found.keys_values)});

  const at::Tensor all = rounded(window).view({-1, width}), weight = rounded(net);
  const at::Tensor recent =
      rounded(window).narrow(1, length - segment, segment).reshape({-1, width});
  const at::Tensor of_queries = weight.narrow(0, 0, d_heads);
  const at::Tensor of_others = weight.narrow(0, d_heads, 2 * d_heads);
  CHECK(
      is_close(found.queries.reshape({-1, d_heads}), at::mm(recent, of_queries.t()), kLastDigits));
  CHECK((found.keys_values.scalar_type() ==
         (length <= kernels::kShortWindow ? at::kBFloat16 : at::kFloat)));
  CHECK(is_close(found.keys_values.view({batch, length, 2 * d_heads}),
                 as_keys(at::mm(all, of_others.t()).view({batch, length, 2 * d_heads})),
                 kLastDigits));
  const at::Tensor g = rounded(by_queries).reshape({-1, d_heads});
  const at::Tensor h = rounded(by_others).reshape({-1, 2 * d_heads});
  const at::Tensor recent_h = h.view({batch, length, 2 * d_heads})
                                  .narrow(1, length - segment, segment)
                                  .reshape({-1, 2 * d_heads});
  CHECK(is_close(gradients[0].reshape({-1, width}),
                 at::mm(g, of_queries) + at::mm(recent_h, of_others), kLastDigits));
  CHECK(is_close(gradients[1], at::cat({at::mm(g.t(), recent), at::mm(h.t(), all)}), kLastDigits));
}

// Does the same with a norm. A normalized value near the middle of two values of bfloat16 may be
// rounded to the other one, so the tolerance is larger.
void check_normalized_window(std::int64_t length) {
  CAPTURE(length);
  constexpr double kFewRoundings = 2e-3;
  const std::int64_t batch = 3, segment = 2, width = 48, heads = 2, d_heads = 8;
  const at::Tensor window = at::randn({batch, length, width}, at::kDouble) * 2 + 0.5;
  const at::Tensor net = at::randn({3 * d_heads, width}, at::kDouble);
  const at::Tensor weight = at::rand({width}, at::kDouble) + 0.5;
  const at::Tensor bias = at::randn({width}, at::kDouble);
  const at::Tensor by_queries = at::randn({batch, segment, heads, d_heads / heads}, at::kDouble);
  const at::Tensor by_others = at::randn({batch, length, 2, heads, d_heads / heads}, at::kDouble);
  const std::vector<at::Tensor> inputs = {as_floats(window.narrow(1, length - segment, segment)),
                                          as_floats(weight), as_floats(bias), as_floats(net)};
  const kernels::RoundedWeights copies_of_weight(inputs.back());
  const kernels::QueriesKeysValues found = kernels::project_window(
      inputs[0], window.to(at::kFloat), inputs[1], inputs[2], inputs[3], heads);
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({found.queries, found.keys_values}, inputs,
                            {by_queries.to(at::kFloat), as_keys(by_others).to(found.keys_values)});

  const auto recent = [&](const at::Tensor& all) {
    return all.view({batch, length, -1}).narrow(1, length - segment, segment).flatten(0, 1);
  };
  const at::Tensor y = at::layer_norm(window, {width}).view({-1, width}), all = rounded(y);
  const at::Tensor factor = rounded(net * weight), shift = net.mv(bias);
  const at::Tensor results = at::addmm(shift, all, factor.t());
  const at::Tensor g = by_queries.view({-1, d_heads}),
                   h = as_keys(by_others).view({batch * length, -1});
  const at::Tensor of_queries = factor.narrow(0, 0, d_heads);
  const at::Tensor of_others = factor.narrow(0, d_heads, 2 * d_heads);
  CHECK(is_close(found.queries.reshape({-1, d_heads}), recent(results).narrow(1, 0, d_heads),
                 kFewRoundings));
  CHECK(is_close(found.keys_values.reshape({-1, 2 * d_heads}),
                 results.narrow(1, d_heads, 2 * d_heads), 2 * kFewRoundings));
  const at::Tensor of_factor = at::cat({rounded(g).t().mm(recent(all)), rounded(h).t().mm(all)});
  const at::Tensor of_shift = at::cat({g.sum(0), h.sum(0)});
  at::Tensor states = window.narrow(1, length - segment, segment).detach().requires_grad_();
  const at::Tensor of_states =
      torch::autograd::grad({at::layer_norm(states, {width}).view({-1, width})}, {states},
                            {rounded(g).mm(of_queries) + rounded(recent(h)).mm(of_others)})[0];
  CHECK(is_close(gradients[0], of_states, kFewRoundings));
  CHECK(is_close(gradients[1], (net * of_factor).sum(0), kFewRoundings));
  CHECK(is_close(gradients[2], net.t().mv(of_shift), kFewRoundings));
  CHECK(is_close(gradients[3], of_factor * weight + of_shift.outer(bias), kFewRoundings));
}

}  // namespace

TEST_CASE("project_window: queries, keys and values come from rounded operands" *
          doctest::test_suite("numeric")) {
  at::manual_seed(2);
  for (const std::int64_t length : {std::int64_t{5}, kernels::kShortWindow + 1}) {
    check_window(length);
    check_normalized_window(length);
  }
}

TEST_CASE("cross_entropy: rounds its operands" * doctest::test_suite("numeric")) {
  at::manual_seed(3);
  // More columns than two panels have.
  const std::int64_t rows = 40, width = 24, ids = 2100;
  const at::Tensor states = at::randn({rows, width}, at::kDouble);
  const at::Tensor weight = at::randn({ids, width}, at::kDouble) * 0.3;
  const at::Tensor bias = at::randn({ids}, at::kDouble) * 0.1;
  const at::Tensor targets = at::randint(ids, {rows}, at::kLong);
  const std::vector<at::Tensor> inputs = {as_floats(states), as_floats(weight), as_floats(bias)};
  const kernels::RoundedWeights copies_of_weight(inputs[1]);
  std::vector<at::Tensor> found;
  {
    const WithThreads three(3);  // they divide the rows
    const kernels::SoftmaxWeights weights{{ids}, {inputs[1]}, {inputs[2]}, {at::Tensor()}, {}, {}};
    const at::Tensor losses = kernels::cross_entropy(inputs[0], weights, targets);
    found = torch::autograd::grad({losses.sum()}, inputs);
    found.push_back(losses.detach());
  }
  // Returns the gradients of states, weight and bias, and the losses. A panel's exponentials are
  // rounded below the maximum of the panels up to it, and so are the states for its weights.
  const auto oracle = [&](auto round) {
    const at::Tensor logits = at::addmm(bias, round(states), round(weight).t());
    const at::Tensor last = std::get<0>(logits.max(1, true));
    const at::Tensor sums = (logits - last).exp().sum(1, true);
    std::vector<at::Tensor> panels, by_weight;
    for (std::int64_t first = 0; first < ids; first += kernels::kPanelColumns) {
      const std::int64_t end = std::min(ids, first + kernels::kPanelColumns);
      const at::Tensor own = std::get<0>(logits.narrow(1, 0, end).max(1, true));
      const at::Tensor ratio = (own - last).exp();
      const at::Tensor rounded_panel = round((logits.narrow(1, first, end - first) - own).exp());
      panels.push_back(rounded_panel * ratio);
      by_weight.push_back(at::mm(rounded_panel.t(), round(states * ratio / sums)));
    }
    const at::Tensor shares = at::cat(panels, 1);
    const at::Tensor ones = at::zeros_like(logits).scatter_(1, targets.unsqueeze(1), 1);
    return std::vector<at::Tensor>{
        at::mm(shares, round(weight)) / sums - at::mm(ones, weight),
        at::cat(by_weight) - at::mm(ones.t(), states), (shares / sums).sum(0) - ones.sum(0),
        at::logsumexp(logits, 1) - logits.gather(1, targets.unsqueeze(1)).squeeze(1)};
  };
  const std::vector<at::Tensor> expected = oracle(rounded);
  const std::vector<at::Tensor> exact = oracle([](const at::Tensor& tensor) { return tensor; });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    // A value near the middle of two may be rounded to the other one.
    CHECK(distance(found[i], expected[i]) < 0.2 * distance(exact[i], expected[i]));
  }
}

TEST_CASE("normalize_rows: rows are rounded in the pass that normalizes or sums them" *
          doctest::test_suite("numeric")) {
  at::manual_seed(4);
  const at::Tensor rows = at::randn({150, 33}), factor = at::empty({1, 1}, at::kBFloat16);
  at::Tensor copy;
  const at::Tensor sums = kernels::sum_rows(rows, factor, copy);
  CHECK(is_close(sums, rows.to(at::kDouble).sum(0), kLastDigits));
  CHECK(at::equal(copy, rows.to(at::kBFloat16)));
  const at::Tensor normalized = kernels::normalize_rows(rows, {}, {}, rows).values;
  CHECK(is_close(normalized, at::layer_norm(rows.to(at::kDouble), {33}), 1e-5));
  CHECK(at::equal(kernels::normalize_rows(rows, {}, {}, factor).values,
                  normalized.to(at::kBFloat16)));
  // Rows that have the precision of an operand are the operand themselves.
  at::Tensor same;
  for (const at::Tensor& operand : {rows, copy}) {
    const at::Tensor sums_of_operand = kernels::sum_rows(operand, operand, same);
    CHECK(same.is_same(operand));
    CHECK(is_close(sums_of_operand, operand.to(at::kDouble).sum(0), kLastDigits));
  }
}

TEST_CASE("RoundedWeights: products read the copy of a tensor and of its parts") {
  using kernels::weight_factor;
  at::manual_seed(5);
  const at::Tensor weight = at::zeros({6, 4}).requires_grad_();
  const at::Tensor other = at::randn({2, 2});
  const kernels::RoundedWeights of_other(other);
  const at::Tensor scales = at::randn({4}).requires_grad_();
  const auto check = [&] {
    const at::NoGradGuard no_grad;
    const kernels::RoundedWeights rounded(weight);
    const at::Tensor whole = weight_factor(weight);
    CHECK(at::equal(whole, weight.to(at::kBFloat16)));
    CHECK(weight_factor(weight).data_ptr() == whole.data_ptr());
    const at::Tensor part = weight_factor(weight.narrow(0, 2, 3));
    CHECK(at::equal(part, whole.narrow(0, 2, 3)));
    CHECK(part.data_ptr() == whole[2].data_ptr());
    CHECK(at::equal(weight_factor(weight.t()), whole.t()));
    CHECK(weight_factor(weight.detach()).data_ptr() == whole.data_ptr());
    CHECK(at::equal(weight_factor(weight, scales), (weight * scales).to(at::kBFloat16)));
    // A result of operations has none.
    const at::Tensor result = weight * 2;
    CHECK(weight_factor(result).is_same(result));
    // Threads that compute pieces get it too.
    const WithThreads two(2);
    std::vector<at::Tensor> found(8);
    machine::for_pieces(8, 1, [&](std::int64_t piece, std::int64_t) {
      found[static_cast<std::size_t>(piece)] = weight_factor(weight);
    });
    for (const at::Tensor& factor : found) CHECK(factor.data_ptr() == whole.data_ptr());
  };
  for (int change = 0; change < 2; ++change) {
    weight.detach().copy_(at::randn({6, 4}));
    check();
  }
  CHECK(weight_factor(weight).is_same(weight));
  CHECK(at::equal(weight_factor(other), other.to(at::kBFloat16)));
}

}  // namespace ql::test
