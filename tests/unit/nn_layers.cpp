// A layer of our own kernels against the same layer by ATen's operations: outputs and gradients.
#include "nn/layers.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "nn/initialisation.h"
#include "nn/row_kernels.h"
#include "nn_support.h"
#include "torch_doctest.h"

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

struct LayerRun {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // of the states, then of the parameters
};

LayerRun run(const LayerCase& of, at::ScalarType type, bool own) {
  net::Network network =
      test::small_network(net::Architecture::kTransformerXl, {1}, 0, {of.segment, of.memory, 0});
  network.d_model = of.d_model;
  network.d_inner = of.d_inner;
  network.pre_lnorm = of.pre_lnorm;
  network.dropout = network.dropatt = of.dropout;
  const nn::Model model = test::random_model(network, 3, at::kDouble);
  nn::Parameters parameters = nn::make_parameters(network, type);
  std::vector<at::Tensor> inputs;
  {
    const at::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < parameters.named.size(); ++i) {
      parameters.named[i].tensor.copy_(model.parameters()[i].tensor);
    }
  }
  at::manual_seed(11);
  const at::Tensor memory = at::randn({of.batch, of.memory, of.d_model}, at::kDouble).to(type);
  const at::Tensor states =
      at::randn({of.batch, of.segment, of.d_model}, at::kDouble).to(type).set_requires_grad(true);
  inputs.push_back(states);
  for (const nn::NamedTensor& parameter : parameters.named) {
    inputs.push_back(parameter.tensor);
  }
  const nn::StepOptions step{true, 5, 6};
  const nn::LayerContext context{network, parameters.layers.front(), step, 0};
  const at::Tensor window = at::cat({memory, states}, 1);
  const at::Tensor positions = nn::position_table(network, window.size(1), type);
  LayerRun result;
  result.output = own ? nn::run_layer(context, window, states, positions)
                      : nn::run_layer_of_operations(context, window, of.segment, positions);
  const at::Tensor weights = at::randn(result.output.sizes(), at::kDouble).to(type);
  result.gradients = torch::autograd::grad({(result.output * weights).sum()}, inputs, {},
                                           c10::nullopt, false, true);
  return result;
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

TEST_CASE("a layer of our own kernels is the layer of ATen's operations") {
  for (const LayerCase& of : layer_cases()) {
    CAPTURE(of.pre_lnorm);
    CAPTURE(of.dropout);
    CAPTURE(of.segment);
    CAPTURE(of.memory);
    CAPTURE(of.d_model);
    const LayerRun expected = run(of, at::kDouble, false);
    const LayerRun wide = run(of, at::kDouble, true), narrow = run(of, at::kFloat, true);
    check_close(wide.output, expected.output, 1e-12);
    check_close(narrow.output, expected.output, 1e-5);
    REQUIRE(wide.gradients.size() == expected.gradients.size());
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      CAPTURE(i);
      check_close(wide.gradients[i], expected.gradients[i], 1e-11);
      check_close(narrow.gradients[i], expected.gradients[i], 1e-4);
    }
  }
}

TEST_CASE("what is not a number stays one through our kernels") {
  const at::Tensor rows = at::ones({2, 3});
  rows[1][2] = std::nan("");
  at::Tensor inner = rows.clone();
  nn::relu_rows_(inner, at::zeros({3}), {});
  CHECK(at::isnan(inner).equal(at::isnan(rows)));
  const nn::AddedRows added =
      nn::add_and_normalize_rows({rows, at::ones({2, 3}), {}, {}}, at::ones({3}), at::zeros({3}));
  CHECK(at::isnan(added.normalized.values).sum().item<std::int64_t>() == 3);
}

}  // namespace ql
