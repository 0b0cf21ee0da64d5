// Compares a layer of our own kernels with the same layer by ATen's operations (outputs and
// gradients), and checks when each of these ways is chosen.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "kernels/feed_forward.h"
#include "kernels/product.h"
#include "kernels/row_kernels.h"
#include "machine/device.h"
#include "nn/encoding.h"
#include "nn/layers.h"
#include "nn/parameters.h"
#include "unit/float32_error.h"
#include "unit/nn_support.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

struct LayerCase {
  bool pre_lnorm;
  double dropout;
  std::int64_t batch, segment, memory, d_model, d_inner;
};

std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> cases;
  std::mt19937 generator(23);
  const auto up_to = [&generator](std::int64_t most) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint32_t>(most + 1));
  };
  for (const bool pre_lnorm : {false, true}) {
    for (const double dropout : {0.0, 0.3}) {
      cases.push_back({pre_lnorm, dropout, 3, 4, 5, 8, 10});
      cases.push_back({pre_lnorm, dropout, 1, 1, 0, 2, 1});
      cases.push_back({pre_lnorm, dropout, 2, 1, 3, 6, 7});
      cases.push_back({pre_lnorm, dropout, 2, 5, 0, 34, 67});
      cases.push_back({pre_lnorm, dropout, 33, 4, 4, 18, 33});  // more rows than a block
      for (int i = 0; i < 5; ++i) {
        const std::int64_t batch = 1 + up_to(9), segment = 1 + up_to(9), memory = up_to(12);
        const std::int64_t d_model = 2 + 2 * up_to(20), d_inner = 1 + up_to(70);
        cases.push_back({pre_lnorm, dropout, batch, segment, memory, d_model, d_inner});
      }
    }
  }
  return cases;
}

net::Network network_of(const LayerCase& of) {
  net::Network network =
      test::small_network(net::Architecture::kTransformerXl, {1}, 0, {of.segment, of.memory, 0});
  network.d_model = of.d_model;
  network.d_inner = of.d_inner;
  network.pre_lnorm = of.pre_lnorm;
  network.dropout = network.dropatt = of.dropout;
  return network;
}

// Returns memory, states, a factor for every output, and the parameters.
test::Tensors random_inputs(const LayerCase& of) {
  at::manual_seed(11);
  test::Tensors inputs = {at::randn({of.batch, of.memory, of.d_model}, at::kDouble),
                          at::randn({of.batch, of.segment, of.d_model}, at::kDouble)};
  inputs.push_back(at::randn_like(inputs.back()));
  const nn::Model model = test::random_model(network_of(of), 3, at::kDouble);
  for (const nn::NamedTensor& parameter : model.parameters()) inputs.push_back(parameter.tensor);
  return inputs;
}

// Returns the output, then the gradients of the states and of the parameters. Unless `own`, the
// layer takes the way that also gives gradients for its memory.
test::Tensors run(const LayerCase& of, const test::Tensors& inputs, bool own) {
  const net::Network network = network_of(of);
  const at::Tensor &memory = inputs[0], &factors = inputs[2];
  const at::ScalarType type = memory.scalar_type();
  const at::Tensor states = inputs[1].detach().clone().set_requires_grad(true);
  nn::Parameters parameters = nn::make_parameters(network, type);
  test::Tensors leaves = {states};
  for (std::size_t i = 0; i < parameters.flat.named.size(); ++i) {
    const at::NoGradGuard no_gradient;
    parameters.flat.named[i].tensor.copy_(inputs[3 + i]);
    leaves.push_back(parameters.flat.named[i].tensor);
  }
  nn::StepOptions step{true, 5, 6};
  step.through_memory = !own;
  const at::Tensor window = at::cat({memory, states}, 1);
  nn::LayerContext context{network, parameters.layers.front(), step, 0};
  context.position_table = nn::position_table(network, window.size(1), type);
  test::Tensors results = {nn::run_layer(context, window, states)};
  for (const at::Tensor& gradient : torch::autograd::grad({(results.front() * factors).sum()},
                                                          leaves, {}, c10::nullopt, false, true)) {
    results.push_back(gradient);
  }
  return results;
}

void check_close(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  REQUIRE(found.defined() == expected.defined());
  if (found.defined()) {
    const at::Tensor difference = found.to(at::kDouble) - expected.to(at::kDouble);
    CHECK(difference.abs().max().item<double>() <=
          tolerance * (1 + expected.abs().max().item<double>()));
  }
}

}  // namespace

TEST_CASE("run_layer: our own kernels compute the layer of ATen's operations" *
          doctest::test_suite("numeric")) {
  for (const LayerCase& of : layer_cases()) {
    CAPTURE(of.pre_lnorm);
    CAPTURE(of.dropout);
    CAPTURE(of.segment);
    CAPTURE(of.memory);
    CAPTURE(of.d_model);
    const test::Tensors inputs = random_inputs(of);
    const auto own = [&of](const test::Tensors& from) { return run(of, from, true); };
    const auto operations = [&of](const test::Tensors& from) { return run(of, from, false); };
    const test::Tensors expected = operations(inputs), found = own(inputs);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      check_close(found[i], expected[i], i == 0 ? 1e-12 : 1e-11);
    }
    test::check_float32(inputs, own, operations);
  }
}

TEST_CASE("choose_layer_way: the table of share/doc/design.md") {
  using nn::LayerKeys, nn::LayerWay;
  const at::Tensor states = at::zeros({2, 3, 4});
  nn::StepOptions plain, through;
  through.through_memory = true;
  const auto way = [&](LayerKeys keys, const nn::StepOptions& step = {}) {
    return nn::choose_layer_way(states, keys, step);
  };
  // Returns the ways that the pieces of two threads take.
  const auto in_pieces = [&](LayerKeys keys, bool invariant, bool operations) {
    const test::WithThreads two(2);
    std::vector<LayerWay> ways(4);
    machine::for_pieces(4, 1, [&](std::int64_t piece, std::int64_t) {
      std::optional<kernels::BatchInvariant> apart;
      if (invariant) apart.emplace();
      std::optional<machine::OperationsOnly> only;
      if (operations) only.emplace();
      ways[static_cast<std::size_t>(piece)] = way(keys);
    });
    CHECK(std::equal(ways.begin() + 1, ways.end(), ways.begin()));
    return ways.front();
  };

  CHECK(way(LayerKeys::kOfWindow) == LayerWay::kFused);
  CHECK(in_pieces(LayerKeys::kOfWindow, false, false) == LayerWay::kFused);
  CHECK(in_pieces(LayerKeys::kOfWindow, true, false) == LayerWay::kFused);
  CHECK(way(LayerKeys::kOfWindow, through) == LayerWay::kOperations);
  CHECK(way(LayerKeys::kPrepared) == LayerWay::kOperations);
  CHECK(in_pieces(LayerKeys::kPrepared, false, false) == LayerWay::kFused);
  CHECK(in_pieces(LayerKeys::kPrepared, true, false) == LayerWay::kOperations);
  for (const LayerKeys keys : {LayerKeys::kOfWindow, LayerKeys::kPrepared}) {
    CHECK(in_pieces(keys, false, true) == LayerWay::kOperations);
    CHECK(nn::choose_layer_way(states.to(at::kMeta), keys, plain) == LayerWay::kOperations);
  }
}

TEST_CASE("layer_norm: equals ATen's" * doctest::test_suite("numeric")) {
  at::manual_seed(6);
  for (const std::int64_t width : {1, 5, 33, 256}) {
    CAPTURE(width);
    const at::Tensor states = at::randn({3, 150, width}, at::kDouble).transpose(0, 1);
    const at::Tensor weight = at::randn({width}, at::kDouble), bias = at::randn_like(weight);
    const at::Tensor expected =
        at::layer_norm(states, {width}, weight, bias, kernels::kLayerNormEpsilon);
    const at::NoGradGuard no_grad;
    check_close(kernels::layer_norm(states, weight, bias), expected, 1e-12);
    check_close(
        kernels::layer_norm(states.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat)),
        expected, 1e-5);
  }
}

TEST_CASE("add_residual: a NaN stays one through our kernels") {
  const at::Tensor rows = at::ones({2, 3});
  rows[1][2] = std::nan("");
  at::Tensor inner = rows.clone();
  kernels::relu_rows(inner, at::zeros({3}), {});
  CHECK(at::isnan(inner).equal(at::isnan(rows)));
  const kernels::AddedRows added =
      kernels::add_rows({rows, at::ones({2, 3}), {}, {}}, at::ones({3}), at::zeros({3}));
  CHECK(at::isnan(added.normalized.values).sum().item<std::int64_t>() == 3);
}

}  // namespace ql
