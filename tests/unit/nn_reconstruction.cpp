// The auxiliary loss by which a Compressive Transformer learns to compress: by its definition.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/compression_internal.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql {
namespace {

constexpr std::int64_t kBatch = 2;

using Numbers = std::vector<double>;

// Content attention of one layer with plain loops.
class Attention {
 public:
  Attention(const net::Network& network, const nn::AttentionParameters& parameters)
      : network_(network), parameters_(parameters) {}

  // Returns what every head takes for a query of the state `recent` from the states of a `memory`.
  Numbers attend(const Numbers& recent, const std::vector<Numbers>& memory) const {
    Numbers sums;
    for (std::int64_t head = 0; head < network_.n_head; ++head) {
      const Numbers query = project(recent, 0, head);
      Numbers weighted(query.size(), 0.0);
      double total = 0;
      for (const Numbers& state : memory) {
        const Numbers key = project(state, 1, head), value = project(state, 2, head);
        double score = 0;
        for (std::size_t n = 0; n < query.size(); ++n) {
          score += query[n] * key[n];
        }
        const double weight = std::exp(score / std::sqrt(static_cast<double>(network_.d_head)));
        total += weight;
        for (std::size_t n = 0; n < value.size(); ++n) {
          weighted[n] += weight * value[n];
        }
      }
      for (const double number : weighted) {
        sums.push_back(number / total);
      }
    }
    return sums;
  }

 private:
  // The query (part 0), key (1) or value (2) of a head.
  Numbers project(const Numbers& state, std::int64_t part, std::int64_t head) const {
    const Numbers seen = network_.pre_lnorm ? normalized(state) : state;
    const auto weight = parameters_.qkv_net.accessor<double, 2>();
    Numbers result;
    for (std::int64_t n = 0; n < network_.d_head; ++n) {
      const std::int64_t row = (part * network_.n_head + head) * network_.d_head + n;
      double sum = 0;
      for (std::size_t from = 0; from < seen.size(); ++from) {
        sum += weight[row][static_cast<std::int64_t>(from)] * seen[from];
      }
      result.push_back(sum);
    }
    return result;
  }
  Numbers normalized(const Numbers& state) const {
    const auto gain = parameters_.norm_weight.accessor<double, 1>();
    const auto shift = parameters_.norm_bias.accessor<double, 1>();
    const auto count = static_cast<double>(state.size());
    double mean = 0, variance = 0;
    for (const double number : state) {
      mean += number / count;
    }
    for (const double number : state) {
      variance += (number - mean) * (number - mean) / count;
    }
    Numbers result;
    for (std::size_t n = 0; n < state.size(); ++n) {
      const auto at = static_cast<std::int64_t>(n);
      result.push_back((state[n] - mean) / std::sqrt(variance + 1e-5) * gain[at] + shift[at]);
    }
    return result;
  }

  const net::Network& network_;
  const nn::AttentionParameters& parameters_;
};

std::vector<Numbers> states_of(const at::Tensor& states, std::int64_t stream) {
  const auto numbers = states.accessor<double, 3>();
  std::vector<Numbers> result;
  for (std::int64_t place = 0; place < states.size(1); ++place) {
    result.emplace_back();
    for (std::int64_t n = 0; n < states.size(2); ++n) {
      result.back().push_back(numbers[stream][place][n]);
    }
  }
  return result;
}

double reconstruction_oracle(const net::Network& network, const nn::AttentionParameters& parameters,
                             const at::Tensor& recent, const at::Tensor& states,
                             const at::Tensor& compressed) {
  const Attention attention(network, parameters);
  double squares = 0, count = 0;
  for (std::int64_t stream = 0; stream < states.size(0); ++stream) {
    for (const Numbers& query : states_of(recent, stream)) {
      const Numbers expected = attention.attend(query, states_of(states, stream));
      const Numbers found = attention.attend(query, states_of(compressed, stream));
      for (std::size_t n = 0; n < expected.size(); ++n) {
        squares += (found[n] - expected[n]) * (found[n] - expected[n]);
        ++count;
      }
    }
  }
  return squares / count;
}

net::Network compressive(const net::Lengths& lengths) {
  net::Network network = test::small_network(net::Architecture::kCompressive, {3}, 0, lengths);
  network.pool = net::Pool::kConvolution;
  return network;
}

at::Tensor find(const nn::Model& model, std::int64_t layer, const std::string& name) {
  for (const nn::NamedTensor& parameter : model.parameters()) {
    if (parameter.name == "layers." + std::to_string(layer) + "." + name) {
      return parameter.tensor;
    }
  }
  FAIL("no parameter " << name);
  return {};
}

}  // namespace

TEST_CASE("attention reconstruction is the mean square of the difference of two attentions") {
  at::manual_seed(6);
  for (const bool pre_lnorm : {false, true}) {
    net::Network network = compressive({4, 4, 2});
    network.pre_lnorm = pre_lnorm;
    const std::int64_t d_model = network.d_model;
    nn::LayerParameters parameters;
    parameters.attention.qkv_net =
        at::randn({3 * network.n_head * network.d_head, d_model}, at::kDouble);
    parameters.attention.norm_weight = at::randn({d_model}, at::kDouble);
    parameters.attention.norm_bias = at::randn({d_model}, at::kDouble);
    const at::Tensor recent = at::randn({kBatch, 3, d_model}, at::kDouble);
    const at::Tensor states = at::randn({kBatch, 4, d_model}, at::kDouble);
    const at::Tensor compressed = at::randn({kBatch, 2, d_model}, at::kDouble);
    const nn::StepOptions step;
    const nn::LayerContext context{network, parameters, step, 0};
    CHECK(nn::compression_loss(context, recent, states, compressed).item<double>() ==
          doctest::Approx(
              reconstruction_oracle(network, parameters.attention, recent, states, compressed))
              .epsilon(1e-12));
  }
}

TEST_CASE("a step's auxiliary loss is the mean over its layers, for the states that leave") {
  const net::Network network = compressive({4, 3, 4});
  const nn::Model model = test::random_model(network, 7);
  // Layers that add nothing: each gets the embedded tokens, so their memories are known.
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const at::NoGradGuard no_gradient;
    for (const char* name :
         {"dec_attn.o_net.weight", "pos_ff.CoreNet.3.weight", "pos_ff.CoreNet.3.bias"}) {
      find(model, layer, name).zero_();
    }
  }
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  const at::Tensor tokens = test::random_tokens(kBatch, 8, network.vocab_size, 3);
  nn::Memory memory = at_lengths.start_memory(kBatch);
  at::Tensor found;
  for (const std::int64_t begin : {0, 4}) {
    at_lengths.forward(tokens.narrow(1, begin, 4), memory, {true, 1, 2}, &found);
  }
  // The second step's window begins with token 1; its first four states leave.
  const at::NoGradGuard no_gradient;
  const at::Tensor embedded = model.embed(tokens);
  const at::Tensor recent = embedded.narrow(1, 4, 4), leaving = embedded.narrow(1, 1, 4);
  double expected = 0;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    nn::LayerParameters parameters;
    parameters.attention.qkv_net = find(model, layer, "dec_attn.qkv_net.weight");
    parameters.attention.norm_weight = find(model, layer, "dec_attn.layer_norm.weight");
    parameters.attention.norm_bias = find(model, layer, "dec_attn.layer_norm.bias");
    parameters.compression.weight = find(model, layer, "compress.weight");
    parameters.compression.bias = find(model, layer, "compress.bias");
    const at::Tensor compressed = nn::compress_memories(network, parameters, leaving, {});
    expected +=
        reconstruction_oracle(network, parameters.attention, recent, leaving, compressed) / 3;
  }
  CHECK(found.item<double>() == doctest::Approx(expected).epsilon(1e-12));
}

}  // namespace ql
