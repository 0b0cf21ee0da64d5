// Tests memory that is reset at documents: the purpose of the rule, and which networks need
// document_offsets. step_test.cpp checks that the model follows the rule.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "unit/drawn_networks.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::test {
namespace {

// Calls check() for networks that keep a memory, in pairs that differ in whether they reset it.
template <typename Check>
void for_every_model(const Check& check) {
  const at::NoGradGuard no_gradient;
  std::uint64_t seed = 0;
  for (net::Network network : drawn_networks(3, 6, 0)) {
    if (keeps_memory(network.architecture)) {
      CAPTURE(net::network_to_json(network).dump());
      ++seed;
      network.reset_memory_at_documents = true;
      const nn::Model resets = random_model(network, seed);
      network.reset_memory_at_documents = false;
      check(resets, random_model(network, seed));
    }
  }
}

}  // namespace

TEST_CASE("forward: a document that begins with a segment is read independently of earlier ones") {
  for_every_model([](const nn::Model& resets, const nn::Model& plain) {
    const net::Lengths& lengths = plain.network().lengths;
    const std::int64_t segment = lengths.segment, length = segment * 12;
    const at::Tensor tokens = random_tokens(1, length, 11, 7);
    // The first document reads what a network without the key reads; so do the others.
    const Starts starts = {0, 5 * segment, 6 * segment, 12 * segment};
    const at::Tensor states = read_states(resets, lengths, tokens, {starts});
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const std::int64_t count = starts[i + 1] - starts[i];
      const at::Tensor alone = read_states(plain, lengths, tokens.narrow(1, starts[i], count));
      CHECK(largest_difference(states.narrow(1, starts[i], count), alone) < 1e-12);
    }
  });
}

TEST_CASE("forward: no token before a document that begins with a segment reaches it") {
  for_every_model([](const nn::Model& resets, const nn::Model& plain) {
    const net::Network& network = plain.network();
    const net::Lengths& lengths = network.lengths;
    const std::int64_t length = lengths.segment * 8, start = lengths.segment * 4;
    const at::Tensor tokens = random_tokens(1, length, 11, 9);
    const at::Tensor others = tokens.clone();
    others.narrow(1, 0, start).add_(1).remainder_(11);
    const auto moved = [&](const nn::Model& model, const std::vector<Starts>& starts) {
      return !at::equal(
          read_states(model, lengths, tokens, starts).narrow(1, start, length - start),
          read_states(model, lengths, others, starts).narrow(1, start, length - start));
    };
    CHECK(!moved(resets, {{start}}));
    const bool remembers =
        lengths.memory > 0 || lengths.compressed_memory > 0 || network.scales.size() > 1;
    if (network.attention_window == 0 && !network.same_length) CHECK(moved(plain, {}) == remembers);
  });
}

TEST_CASE("StepOptions: document_offsets are given exactly for networks that reset their memory") {
  net::Network network = small_network(net::Architecture::kTransformerXl, {3}, 0, {3, 5, 0});
  const nn::Model plain = random_model(network, 1);
  network.reset_memory_at_documents = true;
  const nn::Model resets = random_model(network, 1);
  const at::Tensor tokens = random_tokens(2, 3, 11, 1);
  const auto forward = [&](const nn::Model& model,
                           const std::vector<std::int64_t>& document_offsets) {
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    nn::Memory memory = at_lengths.start_memory(2);
    nn::StepOptions step;
    step.document_offsets = document_offsets;
    at_lengths.forward(tokens, memory, step);
    memory = at_lengths.start_memory(1);
    at_lengths.forward_stream(tokens, memory, document_offsets);
  };
  CHECK_NOTHROW(forward(resets, {0, 3}));
  CHECK_NOTHROW(forward(plain, {}));
  CHECK_THROWS_AS(forward(resets, {}), ConfigError);
  CHECK_THROWS_AS(forward(resets, {0}), ConfigError);
  CHECK_THROWS_AS(forward(resets, {0, -1}), ConfigError);
  CHECK_THROWS_WITH_AS(forward(plain, {0, 3}), doctest::Contains("expected 0"), ConfigError);
}

}  // namespace ql::test
