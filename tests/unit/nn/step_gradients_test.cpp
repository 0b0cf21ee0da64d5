// Compares gradients of the complete model with finite differences in double. Dropout's masks are a
// function of the step, so they do not change while a parameter moves.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/model_at_lengths.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

struct GradientProblem {
  nn::Model model;
  at::Tensor tokens, targets;

  nn::ModelAtLengths at_lengths() const { return {model, model.network().lengths}; }
};

GradientProblem make_problem(net::Network network, std::uint64_t seed) {
  network.dropout = 0.2;
  network.dropatt = network.attention == net::Attention::kLinear ? 0 : 0.2;
  if (network.scales.size() > 1) network.droppath = 0.5;
  const std::int64_t segment = network.lengths.segment;
  return {test::random_model(network, seed),
          test::random_tokens(3, segment, network.vocab_size, seed + 1),
          test::random_tokens(3, segment, network.vocab_size, seed + 2)};
}

at::Tensor loss_of_step(const GradientProblem& problem, nn::Memory memory, std::uint64_t step) {
  const at::Tensor states = problem.at_lengths().forward(problem.tokens, memory, {true, 7, step});
  const at::Tensor losses = problem.model.losses(states, problem.targets);
  return (losses * at::arange(1, losses.numel() + 1, at::kDouble).view(losses.sizes())).sum();
}

// Returns the loss of the step with one element of one parameter moved by `change`. The memory
// stays that of the earlier step: no gradient may come from there.
double moved_loss(const GradientProblem& problem, const nn::Memory& memory, std::uint64_t step,
                  const at::Tensor& parameter, std::int64_t index, double change) {
  const at::NoGradGuard no_grad;
  double& value = parameter.data_ptr<double>()[index];
  const double before = value;
  value = before + change;
  const double loss = loss_of_step(problem, memory, step).item<double>();
  value = before;
  return loss;
}

void check_gradients(const GradientProblem& problem, std::uint64_t step) {
  // An earlier step, recorded by autograd, fills the memory.
  nn::Memory memory = problem.at_lengths().start_memory(3);
  problem.at_lengths().forward(problem.targets, memory, {true, 7, step + 100});
  for (const nn::NamedTensor& state : memory.named()) CHECK(!state.tensor.requires_grad());
  loss_of_step(problem, memory, step).backward();
  for (const nn::NamedTensor& parameter : problem.model.parameters()) {
    CAPTURE(parameter.name);
    const at::Tensor gradient = parameter.tensor.grad();
    REQUIRE(gradient.defined());
    CHECK(gradient.abs().max().item<double>() > 0);
    const std::int64_t size = parameter.tensor.numel();
    for (std::int64_t trial = 0; trial < 5; ++trial) {
      const std::int64_t index = (trial * 7919 + 3) % size;
      constexpr double kChange = 1e-6;
      const double slope = (moved_loss(problem, memory, step, parameter.tensor, index, kChange) -
                            moved_loss(problem, memory, step, parameter.tensor, index, -kChange)) /
                           (2 * kChange);
      const double found = gradient.flatten()[index].item<double>();
      CHECK(std::abs(found - slope) < 1e-5 * (1 + std::abs(slope)));
    }
    parameter.tensor.mutable_grad() = at::Tensor();
  }
}

net::Network ql_network(net::Lengths lengths) {
  return test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, lengths);
}

}  // namespace

TEST_CASE("forward: gradients equal finite differences, Transformer-QL") {
  net::Network network = ql_network({4, 4, 0});
  // Among these steps are some with droppath and some without (see dropout_test.cpp).
  for (std::uint64_t step = 1; step <= 4; ++step) {
    CAPTURE(step);
    network.pre_lnorm = step % 2 == 0;
    network.pool = step > 2 ? net::Pool::kMean : net::Pool::kMax;
    check_gradients(make_problem(network, step), step);
  }
}

TEST_CASE("forward: gradients equal finite differences, old states in the segment, three scales") {
  check_gradients(make_problem(ql_network({4, 12, 0}), 1), 1);
  check_gradients(
      make_problem(test::small_network(net::Architecture::kTransformerQl, {1, 1, 1}, 0, {4, 4, 0}),
                   2),
      2);
}

TEST_CASE(
    "forward: gradients equal finite differences, Transformer-XL with biases of every layer") {
  net::Network network = test::small_network(net::Architecture::kTransformerXl, {2}, 0, {3, 4, 0});
  network.untie_r = true;
  check_gradients(make_problem(network, 3), 1);
  network.pre_lnorm = false;
  check_gradients(make_problem(network, 4), 2);
}

TEST_CASE("forward: gradients equal finite differences, Multi-scale and vanilla") {
  check_gradients(
      make_problem(test::small_network(net::Architecture::kMultiScale, {1, 1}, 1, {8, 0, 0}), 5),
      1);
  check_gradients(
      make_problem(test::small_network(net::Architecture::kVanilla, {2}, 0, {5, 0, 0}), 6), 1);
}

TEST_CASE("forward: gradients equal finite differences, adaptive input and softmax") {
  net::Network network = test::small_network(net::Architecture::kTransformerXl, {1}, 0, {6, 4, 0});
  network.cutoffs = {3, 7};
  network.proj_init_std = 0.5;
  network.clamp_len = 3;
  network.div_val = 2;
  check_gradients(make_problem(network, 3), 1);
  network.tie_projs = {true, false, true};
  check_gradients(make_problem(network, 4), 2);
  network.div_val = 1;
  network.d_embed = 5;
  check_gradients(make_problem(network, 5), 3);
}

TEST_CASE("forward: gradients equal finite differences, other encodings") {
  net::Network network = ql_network({4, 8, 0});
  network.encoding = net::Encoding::kShaw;
  network.clamp_len = 4;
  check_gradients(make_problem(network, 3), 2);
  network = test::small_network(net::Architecture::kVanilla, {2}, 0, {5, 0, 0});
  network.encoding = net::Encoding::kAbsolute;
  check_gradients(make_problem(network, 4), 1);
}

TEST_CASE("forward: gradients equal finite differences, queries that see few keys") {
  net::Network network = ql_network({4, 8, 0});
  network.same_length = true;
  check_gradients(make_problem(network, 3), 2);
  network.same_length = false;
  network.attention_window = 3;
  check_gradients(make_problem(network, 4), 2);
  network.attention_dilation = {2, 3};
  check_gradients(make_problem(network, 5), 2);
}

TEST_CASE("linear_attention: gradients equal finite differences") {
  net::Network network = ql_network({4, 8, 0});
  network.attention = net::Attention::kLinear;
  check_gradients(make_problem(network, 3), 2);
  // The segment has more queries than a block, and its memory is a sum.
  network = test::small_network(net::Architecture::kTransformerXl, {1}, 0, {70, 5, 0});
  network.attention = net::Attention::kLinear;
  check_gradients(make_problem(network, 4), 1);
}

TEST_CASE("compress: gradients equal finite differences, Compressive by mean") {
  net::Network network = test::small_network(net::Architecture::kCompressive, {2}, 0, {4, 2, 4});
  network.pool = net::Pool::kMean;
  check_gradients(make_problem(network, 8), 1);
}

TEST_CASE("compress_memories: gradients equal finite differences, Compressive by use") {
  net::Network network = test::small_network(net::Architecture::kCompressive, {2}, 0, {4, 2, 3});
  network.pool = net::Pool::kMostUsed;
  check_gradients(make_problem(network, 8), 1);
}

TEST_CASE("compression_loss: trains convolution and decoder and nothing else") {
  using net::CompressionLoss;
  constexpr auto kCompressive = net::Architecture::kCompressive;
  std::vector<net::Network> networks;
  for (const net::Pool pool : {net::Pool::kConvolution, net::Pool::kDilatedConvolution}) {
    for (const CompressionLoss loss :
         {CompressionLoss::kAttentionReconstruction, CompressionLoss::kAutoEncoding}) {
      // With the shorter memory, states of the segment itself are evicted.
      for (const net::Lengths lengths : {net::Lengths{4, 6, 4}, {4, 1, 3}}) {
        networks.push_back(test::small_network(kCompressive, {2}, 0, lengths));
        networks.back().pool = pool;
        networks.back().compression_loss = loss;
        networks.back().pre_lnorm = lengths.memory > 1;
      }
    }
  }
  for (const net::Network& network : networks) {
    CAPTURE(net::to_text(network.pool));
    CAPTURE(net::to_text(network.compression_loss));
    const GradientProblem problem = make_problem(network, 9);
    nn::Memory memory = problem.at_lengths().start_memory(3);
    for (std::uint64_t step = 0; step < 3; ++step) {
      problem.at_lengths().forward(problem.targets, memory, {true, 7, step});
    }
    const auto reconstruction = [&](bool training) {
      nn::Memory copy = memory;
      at::Tensor loss = at::ones({1});
      problem.at_lengths().forward(problem.tokens, copy, {training, 7, 9}, &loss);
      return loss;
    };
    CHECK(!reconstruction(false).defined());
    reconstruction(true).backward();
    for (const nn::NamedTensor& parameter : problem.model.parameters()) {
      CAPTURE(parameter.name);
      const at::Tensor gradient = parameter.tensor.grad();
      if (parameter.name.find("compress") == std::string::npos) {
        CHECK(!gradient.defined());
        continue;
      }
      REQUIRE(gradient.defined());
      for (std::int64_t index = 0; index < parameter.tensor.numel(); index += 13) {
        constexpr double kChange = 1e-6;
        double& value = parameter.tensor.data_ptr<double>()[index];
        const double before = value;
        double losses[2];
        for (const int side : {0, 1}) {
          value = before + (side == 0 ? kChange : -kChange);
          const double found = reconstruction(true).item<double>();
          losses[side] = found;
        }
        value = before;
        const double slope = (losses[0] - losses[1]) / (2 * kChange);
        CHECK(std::abs(gradient.flatten()[index].item<double>() - slope) <
              1e-6 * (1 + std::abs(slope)));
      }
    }
    // The loss of the targets has no gradient for the convolution, because memories carry none.
    for (const nn::NamedTensor& parameter : problem.model.parameters()) {
      parameter.tensor.mutable_grad() = at::Tensor();
    }
    loss_of_step(problem, memory, 9).backward();
    for (const nn::NamedTensor& parameter : problem.model.parameters()) {
      CHECK(parameter.tensor.grad().defined() ==
            (parameter.name.find("compress") == std::string::npos));
    }
  }
  net::Network network = networks.front();
  for (const net::Pool pool : {net::Pool::kMax, net::Pool::kMean, net::Pool::kMostUsed}) {
    network.pool = pool;
    const GradientProblem problem = make_problem(network, 9);
    nn::Memory memory = problem.at_lengths().start_memory(3);
    at::Tensor loss = at::ones({1});
    problem.at_lengths().forward(problem.tokens, memory, {true, 7, 1}, &loss);
    CHECK(!loss.defined());
  }
}

}  // namespace ql
