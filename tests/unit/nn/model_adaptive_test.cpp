// Tests adaptive input and softmax: sums, gradients, sizes and refusals. step_test.cpp checks the
// values.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/cost.h"
#include "nn/model.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

struct Case {
  const char* name;
  std::vector<std::int64_t> cutoffs;
  std::int64_t div_val, d_embed;
  bool proj_same_dim;
  std::vector<bool> tie_projs;
};

const std::vector<Case> kCases = {
    {"plain", {}, 1, 8, true, {}},
    {"plain, narrow embeddings", {}, 1, 6, true, {}},
    {"plain, tied projection", {}, 1, 6, true, {true}},
    {"one width", {3, 7}, 1, 8, true, {}},
    {"one narrow width", {3, 7}, 1, 6, true, {}},
    {"falling widths", {3, 7}, 2, 8, true, {}},
    {"falling widths, first unprojected", {3, 7}, 2, 8, false, {}},
    {"falling widths, own projections", {4}, 4, 8, true, {false, false}},
    {"falling widths, tied projections", {1, 2, 3}, 2, 16, true, {true, true, true, true}},
};

net::Network network_of(const Case& one) {
  net::Network network =
      test::small_network(net::Architecture::kTransformerXl, {1}, 0, net::Lengths{4, 4, 0});
  network.cutoffs = one.cutoffs;
  network.div_val = one.div_val;
  network.d_embed = one.d_embed;
  network.proj_same_dim = one.proj_same_dim;
  network.tie_projs = one.tie_projs;
  network.proj_init_std = 0.5;
  network.check();
  return network;
}

at::Tensor find(const nn::Model& model, const std::string& name) {
  for (const nn::NamedTensor& parameter : model.parameters()) {
    if (parameter.name == name) return parameter.tensor.detach();
  }
  return {};
}

}  // namespace

TEST_CASE("log_probabilities: the probabilities of every division sum to 1") {
  for (const Case& one : kCases) {
    CAPTURE(one.name);
    const nn::Model model = test::random_model(network_of(one), 5);
    const std::int64_t vocabulary = model.network().vocab_size;
    const at::Tensor states = at::sin(at::arange(8, at::kDouble)).expand({1, vocabulary, 8});
    const at::Tensor targets = at::arange(vocabulary, at::kLong).unsqueeze(0);
    CHECK((-model.losses(states, targets)).exp().sum().item<double>() == doctest::Approx(1));
  }
}

TEST_CASE("log_probabilities: every token's probability is that of its loss") {
  for (const Case& one : kCases) {
    CAPTURE(one.name);
    const nn::Model model = test::random_model(network_of(one), 5);
    const std::int64_t vocabulary = model.network().vocab_size;
    const at::Tensor states = at::sin(at::arange(24, at::kDouble)).view({1, 3, 8});
    const at::Tensor all = model.log_probabilities(states);
    REQUIRE(all.sizes() == at::IntArrayRef({1, 3, vocabulary}));
    for (std::int64_t id = 0; id < vocabulary; ++id) {
      const at::Tensor losses = model.losses(states, at::full({1, 3}, id, at::kLong));
      CHECK(test::largest_difference(losses, -all.select(2, id)) < 1e-12);
    }
    CHECK(test::largest_difference(at::log_softmax(model.logits(states), -1), all) < 1e-12);
  }
  const nn::Model model = test::random_model(network_of(kCases[0]), 5);
  CHECK_THROWS_AS(model.log_probabilities(at::zeros({3, 8}, at::kDouble)), ConfigError);
  CHECK_THROWS_AS(model.logits(at::zeros({3, 8}, at::kDouble)), ConfigError);
}

TEST_CASE("logits: those of a plain softmax are products with its weights, without a shift") {
  net::Network network = test::small_network(net::Architecture::kVanilla, {1}, 0, {4, 0, 0});
  const nn::Model model = test::random_model(network, 5);
  const at::Tensor states = at::sin(at::arange(24, at::kDouble)).view({1, 3, 8});
  const nn::Parameters& weights = model.weights();
  REQUIRE(weights.softmax.weights.size() == 1);
  const at::Tensor expected =
      at::matmul(states, weights.softmax.weights[0].t()) + weights.softmax.biases[0];
  CHECK(test::largest_difference(model.logits(states), expected) < 1e-12);
}

TEST_CASE("Model: loss() is the mean of losses(), and so are its gradients") {
  for (const Case& one : kCases) {
    CAPTURE(one.name);
    const nn::Model model = test::random_model(network_of(one), 7);
    const at::Tensor states = at::sin(at::arange(80, at::kDouble)).view({2, 5, 8});
    const at::Tensor targets = test::random_tokens(2, 5, model.network().vocab_size, 8);
    const auto gradients_of = [&](const at::Tensor& loss, const at::Tensor& leaf) {
      loss.backward();
      std::vector<at::Tensor> found = {leaf.grad()};
      for (const nn::NamedTensor& parameter : model.parameters()) {
        found.push_back(parameter.tensor.grad());
        parameter.tensor.mutable_grad() = at::Tensor();
      }
      return found;
    };
    const at::Tensor leaf = states.clone().set_requires_grad(true);
    const at::Tensor other = states.clone().set_requires_grad(true);
    const at::Tensor mean = model.losses(leaf, targets).mean();
    const at::Tensor loss = model.loss(other, targets, 0.1);
    CHECK(loss.dim() == 0);
    CHECK(test::largest_difference(mean, loss) < 1e-12);
    const std::vector<at::Tensor> slow = gradients_of(mean, leaf);
    const std::vector<at::Tensor> fast = gradients_of(loss, other);
    for (std::size_t i = 0; i < slow.size(); ++i) {
      REQUIRE(slow[i].defined() == fast[i].defined());
      if (slow[i].defined()) CHECK(test::largest_difference(slow[i], fast[i]) < 1e-12);
    }
    CHECK(fast.front().abs().max().item<double>() > 0);
  }
  const nn::Model model = test::random_model(network_of(kCases[0]), 7);
  CHECK_THROWS_AS(model.loss(at::zeros({2, 5, 7}, at::kDouble), at::zeros({2, 5}, at::kLong), 1),
                  ConfigError);
  CHECK_THROWS_AS(model.loss(at::zeros({2, 5, 8}, at::kDouble), at::full({2, 5}, 11, at::kLong), 1),
                  FormatError);
}

TEST_CASE("Model: parameters of every division are counted") {
  for (const Case& one : kCases) {
    CAPTURE(one.name);
    const net::Network network = network_of(one);
    CHECK(nn::Model(network, at::kFloat).parameter_count() ==
          net::cost(network, network.lengths).parameters);
  }
}

TEST_CASE("Model: impossible divisions are refused") {
  const auto refused = [](const std::function<void(net::Network&)>& change) {
    net::Network network = network_of(kCases[5]);
    change(network);
    CHECK_THROWS_AS(nn::Model(network, at::kFloat), ConfigError);
  };
  refused([](net::Network& network) { network.cutoffs = {0, 7}; });
  refused([](net::Network& network) { network.cutoffs = {7, 3}; });
  refused([](net::Network& network) { network.cutoffs = {3, 3}; });
  refused([](net::Network& network) { network.cutoffs = {3, 11}; });
  refused([](net::Network& network) { network.div_val = 0; });
  refused([](net::Network& network) { network.div_val = 8; });
  refused([](net::Network& network) { network.tie_projs = {true}; });
}

TEST_CASE("initialise: projections have a deviation of their own") {
  net::Network network = network_of(kCases[5]);
  nn::Model narrow(network, at::kDouble);
  network.proj_init_std *= 4;
  nn::Model wide(network, at::kDouble);
  narrow.initialise(3);
  wide.initialise(3);
  int projections = 0;
  for (const nn::NamedTensor& parameter : wide.parameters()) {
    CAPTURE(parameter.name);
    const bool projects = parameter.name.find("_projs.") != std::string::npos;
    projections += projects ? 1 : 0;
    CHECK(at::equal(parameter.tensor, find(narrow, parameter.name) * (projects ? 4 : 1)));
  }
  CHECK(projections > 0);
}

}  // namespace ql
