// Tests the complete model: sizes, initial values, refusals, and how a step treats its memory.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "net/cost.h"
#include "nn/model_at_lengths.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

constexpr auto kTransformerQl = net::Architecture::kTransformerQl;

net::Network ql_network() { return test::small_network(kTransformerQl, {1, 2}, 1, {4, 4, 0}); }

net::Network compressive_network(
    net::Pool pool, net::CompressionLoss loss = net::CompressionLoss::kAttentionReconstruction) {
  net::Network network = test::small_network(net::Architecture::kCompressive, {2}, 0, {4, 3, 3});
  network.pool = pool;
  network.compression_loss = loss;
  return network;
}

bool equal_weights(const nn::Model& a, const nn::Model& b) {
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    if (!at::equal(a.parameters()[i].tensor, b.parameters()[i].tensor)) return false;
  }
  return true;
}

void check_initial_values(const nn::Model& model) {
  at::Tensor norm_weights = at::zeros({0}, at::kDouble);
  for (const nn::NamedTensor& parameter : model.parameters()) {
    CAPTURE(parameter.name);
    const at::Tensor values = parameter.tensor.detach().flatten();
    const bool is_attention_bias = parameter.name == "r_w_bias" || parameter.name == "r_r_bias";
    if (parameter.name.find("layer_norm.weight") != std::string::npos) {
      norm_weights = at::cat({norm_weights, values});
    } else if (parameter.name.find("bias") != std::string::npos && !is_attention_bias) {
      CHECK(values.abs().max().item<double>() == 0);
    } else if (values.numel() > 1000) {
      CHECK(std::abs(values.mean().item<double>()) < 5 * 0.02 / std::sqrt(values.numel()));
      CHECK(values.std().item<double>() == doctest::Approx(0.02).epsilon(0.05));
      // A normal distribution has 68.3 % within one deviation.
      CHECK(values.abs().lt(0.02).to(at::kDouble).mean().item<double>() ==
            doctest::Approx(0.683).epsilon(0.04));
    } else {
      CHECK(values.abs().max().item<double>() > 0);
    }
  }
  CHECK(norm_weights.mean().item<double>() == doctest::Approx(1).epsilon(0.01));
  CHECK(norm_weights.std().item<double>() == doctest::Approx(0.02).epsilon(0.2));
}

}  // namespace

TEST_CASE("Model: parameters and memories are as many as lib/net counts") {
  net::Network networks[] = {
      ql_network(),
      test::small_network(kTransformerQl, {1, 1, 1}, 0, {8, 8, 0}),
      test::small_network(kTransformerQl, {1, 1}, 2, {4, 12, 0}),
      test::small_network(kTransformerQl, {2, 2}, 1, {8, 0, 0}),
      test::small_network(net::Architecture::kTransformerXl, {3}, 0, {3, 5, 0}),
      test::small_network(net::Architecture::kMultiScale, {1, 2}, 1, {8, 0, 0}),
      test::small_network(net::Architecture::kVanilla, {2}, 0, {5, 0, 0}),
      compressive_network(net::Pool::kMostUsed),
      compressive_network(net::Pool::kConvolution),
      compressive_network(net::Pool::kDilatedConvolution, net::CompressionLoss::kAutoEncoding)};
  for (net::Network& network : networks) {
    for (const bool untie_r : {false, true}) {
      network.untie_r = untie_r;
      const nn::Model model(network, at::kFloat);
      const net::Cost cost = net::cost(network, network.lengths);
      CHECK(model.parameter_count() == cost.parameters);
      const nn::Memory memory = nn::ModelAtLengths(model, network.lengths).start_memory(2);
      std::int64_t states = 0;
      for (const nn::NamedTensor& state : memory.named()) {
        CHECK(state.tensor.size(0) == 2);
        CHECK(state.tensor.size(2) == network.d_model);
        CHECK(state.tensor.abs().max().item<float>() == 0);
        states += state.tensor.size(1);
      }
      CHECK(states == cost.memory_states);
    }
  }
}

TEST_CASE("Model: a Transformer-QL has the parameters of a Transformer-XL of its depth") {
  const nn::Model ql_model(ql_network(), at::kFloat);
  const nn::Model xl_model(
      test::small_network(net::Architecture::kTransformerXl, {4}, 0, {4, 4, 0}), at::kFloat);
  REQUIRE(ql_model.parameters().size() == xl_model.parameters().size());
  for (std::size_t i = 0; i < ql_model.parameters().size(); ++i) {
    CHECK(ql_model.parameters()[i].name == xl_model.parameters()[i].name);
  }
  CHECK(ql_model.parameter_count() == xl_model.parameter_count());
}

TEST_CASE("initialise: the same seed gives the same weights with any number of threads") {
  net::Network network = ql_network();
  network.vocab_size = 5000;
  nn::Model a(network, at::kFloat), b(network, at::kFloat), c(network, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  a.initialise(11);
  at::set_num_threads(3);
  b.initialise(11);
  at::set_num_threads(threads);
  c.initialise(12);
  CHECK(equal_weights(a, b));
  CHECK(!equal_weights(a, c));
}

TEST_CASE("initialise: values have the distributions of appendix E") {
  const auto model_of = [](net::Network network) {
    network.d_model = 64;
    network.d_inner = 96;
    network.vocab_size = 3000;
    network.init_std = 0.02;
    nn::Model model(network, at::kDouble);
    model.initialise(3);
    return model;
  };
  const nn::Model model = model_of(ql_network());
  check_initial_values(model);
  const nn::Model compressive =
      model_of(compressive_network(net::Pool::kConvolution, net::CompressionLoss::kAutoEncoding));
  check_initial_values(compressive);
  const auto learned =
      std::count_if(compressive.parameters().begin(), compressive.parameters().end(),
                    [](const nn::NamedTensor& parameter) {
                      return parameter.name == "layers.1.compress.weight" ||
                             parameter.name == "layers.1.decompress.weight" ||
                             parameter.name == "layers.1.decompress.bias";
                    });
  CHECK(learned == 3);
}

TEST_CASE("initialise: no two parameters begin with the same values") {
  nn::Model model(test::small_network(net::Architecture::kTransformerXl, {2}, 0, {4, 4, 0}),
                  at::kFloat);
  model.initialise(1);
  CHECK(!at::equal(model.parameters()[4].tensor, model.parameters()[15].tensor));
  CHECK(model.parameters()[4].name == "layers.0.dec_attn.qkv_net.weight");
  CHECK(model.parameters()[15].name == "layers.1.dec_attn.qkv_net.weight");
}

TEST_CASE("forward: streams of a batch are independent, and lengths may differ from training's") {
  const nn::Model model = test::random_model(ql_network(), 5);
  const at::Tensor tokens = test::random_tokens(3, 24, 11, 1);
  const at::Tensor targets = test::random_tokens(3, 24, 11, 2);
  for (const net::Lengths lengths : {net::Lengths{4, 4, 0}, {2, 6, 0}, {8, 0, 0}, {12, 4, 0}}) {
    const at::Tensor together = test::read_streams(model, lengths, tokens, targets);
    for (std::int64_t row = 0; row < 3; ++row) {
      const at::Tensor alone =
          test::read_streams(model, lengths, tokens.narrow(0, row, 1), targets.narrow(0, row, 1));
      CHECK(test::largest_difference(alone, together.narrow(0, row, 1)) < 1e-12);
    }
  }
}

TEST_CASE("forward: a training step is a function of its seed and step") {
  net::Network network = ql_network();
  network.dropout = 0.2;
  network.dropatt = 0.2;
  network.droppath = 0.3;
  const nn::Model model = test::random_model(network, 5);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  const at::Tensor tokens = test::random_tokens(3, 4, 11, 1);
  const auto run = [&](const nn::StepOptions& step) {
    nn::Memory memory = at_lengths.start_memory(3);
    return at_lengths.forward(tokens, memory, step).detach();
  };
  CHECK(at::equal(run({true, 1, 1}), run({true, 1, 1})));
  CHECK(!at::equal(run({true, 1, 1}), run({true, 1, 2})));
  CHECK(!at::equal(run({true, 1, 1}), run({true, 2, 1})));
  CHECK(!at::equal(run({true, 1, 1}), run({})));
  CHECK(at::equal(run({false, 1, 1}), run({})));
}

TEST_CASE("forward: input that does not fit together is refused") {
  const net::Network network = ql_network();
  const nn::Model model = test::random_model(network, 1);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  const at::Tensor tokens = test::random_tokens(2, 4, 11, 1);
  nn::Memory memory = at_lengths.start_memory(2);
  const auto forward = [&](const at::Tensor& ids) { return at_lengths.forward(ids, memory, {}); };
  CHECK_NOTHROW(forward(tokens));
  CHECK_THROWS_AS(forward(tokens.narrow(1, 0, 3)), ConfigError);
  CHECK_THROWS_AS(forward(tokens.narrow(0, 0, 1)), ConfigError);  // the memory has two streams
  CHECK_THROWS_AS(forward(tokens.to(at::kInt)), ConfigError);
  CHECK_THROWS_AS(forward(tokens.flatten()), ConfigError);
  CHECK_THROWS_AS(forward(at::Tensor()), ConfigError);
  CHECK_THROWS_WITH_AS(forward(tokens.add(11)), doctest::Contains("outside the vocabulary of 11"),
                       FormatError);
  CHECK_THROWS_AS(forward(tokens.sub(12)), FormatError);

  nn::Memory other = nn::ModelAtLengths(model, {4, 8, 0}).start_memory(2);
  CHECK_THROWS_WITH_AS(at_lengths.forward(tokens, other, {}), doctest::Contains("memory.0"),
                       ConfigError);
  other.stages.pop_back();
  CHECK_THROWS_AS(at_lengths.forward(tokens, other, {}), ConfigError);

  const at::Tensor states = at::zeros({2, 4, 8}, at::kDouble);
  CHECK_NOTHROW(model.losses(states, tokens));
  CHECK_THROWS_AS(model.losses(states.narrow(1, 0, 3), tokens), ConfigError);
  CHECK_THROWS_AS(model.losses(states, tokens.add(11)), FormatError);
}

TEST_CASE("Model: networks that cannot be built are refused") {
  net::Network network = ql_network();
  network.vocab_size = 0;
  CHECK_THROWS_AS(nn::Model(network, at::kFloat), ConfigError);
  network = ql_network();
  network.d_model = 7;
  CHECK_THROWS_AS(nn::Model(network, at::kFloat), ConfigError);
}

TEST_CASE("forward: evaluation records no gradient") {
  const nn::Model model = test::random_model(ql_network(), 1);
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  nn::Memory memory = at_lengths.start_memory(1);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = test::random_tokens(1, 4, 11, 1);
  const at::Tensor states = at_lengths.forward(tokens, memory, {});
  CHECK(!states.requires_grad());
  CHECK(!model.losses(states, tokens).requires_grad());
}

}  // namespace ql
