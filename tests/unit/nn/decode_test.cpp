// Compares decoding streams token by token with reading them segment by segment.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/projection.h"
#include "nn/decode.h"
#include "unit/drawn_networks.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::test {
namespace {

constexpr std::int64_t kStreams = 2, kSegments = 7;

nn::DecodeState begin(const nn::ModelAtLengths& model, std::int64_t batch) {
  return {model.geometry(), model.start_memory(batch), batch, model.model().options()};
}

// Reads tokens [streams, length] in pieces of the sizes `pieces`, taken in turn. Documents start at
// the same tokens in all streams.
at::Tensor read_decoding(const nn::ModelAtLengths& model, nn::DecodeState& decoding,
                         const at::Tensor& tokens, const std::vector<std::int64_t>& pieces,
                         const Starts& starts = {}) {
  std::vector<at::Tensor> states;
  std::size_t piece = 0;
  for (std::int64_t first = 0; first < tokens.size(1);) {
    std::int64_t last = std::min(tokens.size(1), first + pieces[piece++ % pieces.size()]);
    for (const std::int64_t start : starts) {
      if (start == first) decoding.begin_document();
      if (start > first) last = std::min(last, start);
    }
    states.push_back(model.forward_next(tokens.narrow(1, first, last - first), decoding));
    first = last;
  }
  return at::cat(states, 1);
}

}  // namespace

TEST_CASE("forward_next: computes token by token what the network computes segment by segment") {
  const at::NoGradGuard no_gradient;
  std::uint64_t seed = 0;
  for (const net::Network& network : drawn_networks(11, 3, 60)) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed);
    const net::Lengths& lengths = network.lengths;
    const at::Tensor tokens =
        random_tokens(kStreams, kSegments * lengths.segment, network.vocab_size, seed);
    const Starts starts = network.reset_memory_at_documents
                              ? Starts{0, lengths.segment + 1, 3 * lengths.segment}
                              : Starts{};
    const at::Tensor expected =
        read_states(model, lengths, tokens, std::vector<Starts>(starts.empty() ? 0 : 2, starts));
    const nn::ModelAtLengths at_lengths(model, lengths);
    for (const std::vector<std::int64_t>& pieces :
         {std::vector<std::int64_t>{1}, {1, 2, 1, 3}, {lengths.segment}, {5 * lengths.segment}}) {
      nn::DecodeState decoding = begin(at_lengths, kStreams);
      const at::Tensor states = read_decoding(at_lengths, decoding, tokens, pieces, starts);
      CHECK(largest_difference(states, expected) < 1e-10);
    }
  }
}

TEST_CASE("forward_next: tokens that do not fit the streams are refused") {
  const nn::Model model = random_model(drawn_networks(11, 1, 1).front(), 1);
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  nn::DecodeState decoding = begin(at_lengths, 2);
  for (const auto& [streams, count] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 1}, {2, 0}}) {
    const at::Tensor tokens = at::zeros({streams, count}, at::kLong);
    CHECK_THROWS_AS(at_lengths.forward_next(tokens, decoding), ConfigError);
  }
  CHECK_THROWS_AS(at_lengths.forward_next(at::zeros({2}, at::kLong), decoding), ConfigError);
}

TEST_CASE("DecodeState: continues from the memory of complete segments, and leaves the same") {
  const at::NoGradGuard no_gradient;
  std::uint64_t seed = 0;
  for (net::Network network : drawn_networks(12, 2, 30)) {
    network.reset_memory_at_documents = false;
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed);
    const std::int64_t segment = network.lengths.segment;
    const at::Tensor tokens = random_tokens(1, kSegments * segment, network.vocab_size, seed);
    const at::Tensor expected = read_states(model, network.lengths, tokens);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    nn::Memory memory = at_lengths.start_memory(1);
    at_lengths.forward_stream(tokens.narrow(1, 0, 2 * segment).view({2, segment}), memory);
    nn::DecodeState decoding(at_lengths.geometry(), memory, 1, model.options());
    const at::Tensor middle =
        at_lengths.forward_next(tokens.narrow(1, 2 * segment, 3 * segment), decoding);
    CHECK(largest_difference(middle, expected.narrow(1, 2 * segment, 3 * segment)) < 1e-10);
    nn::Memory after = decoding.memory();
    const at::Tensor last =
        at_lengths.forward(tokens.narrow(1, 5 * segment, segment), after, nn::StepOptions());
    CHECK(largest_difference(last, expected.narrow(1, 5 * segment, segment)) < 1e-10);
  }
}

TEST_CASE("DecodeState: streams that share a beginning go on as copies do") {
  const at::NoGradGuard no_gradient;
  std::uint64_t seed = 0;
  for (const net::Network& network : drawn_networks(14, 2, 40)) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    const std::int64_t segment = network.lengths.segment;
    const at::Tensor tokens = random_tokens(3, 3 * segment, network.vocab_size, seed);
    for (const std::int64_t before : {std::int64_t{0}, std::int64_t{1}, segment, segment + 1}) {
      nn::DecodeState root = begin(at_lengths, 1);
      const at::Tensor beginning = random_tokens(1, before, network.vocab_size, seed + 1);
      if (before > 0) read_decoding(at_lengths, root, beginning, {3});
      // Streams that share a beginning may share what they read next; and the root is left as it
      // is.
      nn::DecodeState alone = root.streams({0}), one = root.shared(1);
      const at::Tensor first = tokens.narrow(0, 0, 1).narrow(1, 0, segment);
      read_decoding(at_lengths, alone, first, {2});
      read_decoding(at_lengths, one, first, {2});
      nn::DecodeState of_alone = alone.shared(2), of_one = one.shared(2);
      const at::Tensor both = tokens.narrow(0, 1, 2);
      CHECK(largest_difference(read_decoding(at_lengths, of_one, both, {3}),
                               read_decoding(at_lengths, of_alone, both, {3})) < 1e-10);
      for (const std::int64_t piece : {std::int64_t{1}, 2 * segment}) {
        nn::DecodeState copies = root.streams({0, 0, 0}), shared = root.shared(3);
        const at::Tensor expected = read_decoding(at_lengths, copies, tokens, {piece});
        CHECK(largest_difference(read_decoding(at_lengths, shared, tokens, {piece}), expected) <
              1e-10);
        CHECK(shared.batch() == 3);
        CHECK(shared.bytes_per_stream() > 0);
        nn::DecodeState of_last = shared.streams({2}), of_copy = copies.streams({2});
        const at::Tensor next = tokens.narrow(0, 2, 1);
        CHECK(largest_difference(read_decoding(at_lengths, of_last, next, {piece}),
                                 read_decoding(at_lengths, of_copy, next, {piece})) < 1e-10);
      }
    }
  }
}

TEST_CASE("forward_next: streams of a batch have the bits of each stream alone" *
          doctest::test_suite("numeric")) {
  const at::NoGradGuard no_gradient;
  const kernels::BatchInvariant apart;
  std::uint64_t seed = 0;
  for (net::Network network : drawn_networks(13, 2, 30)) {
    network.reset_memory_at_documents = false;
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed, at::kFloat);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    const std::int64_t segment = network.lengths.segment;
    const at::Tensor prompt = random_tokens(1, segment + 1, network.vocab_size, seed);
    const at::Tensor tokens = random_tokens(9, 2 * segment, network.vocab_size, seed + 1);
    nn::DecodeState alone = begin(at_lengths, 1);
    read_decoding(at_lengths, alone, prompt, {1});
    nn::DecodeState together = alone.streams(std::vector<std::int64_t>(9, 0));
    const at::Tensor states = read_decoding(at_lengths, together, tokens, {1});
    const at::Tensor probabilities = model.log_probabilities(states.narrow(1, 0, 1));
    for (const std::int64_t row : {0, 4, 8}) {
      nn::DecodeState of_row = alone.streams({0});
      const at::Tensor expected = read_decoding(at_lengths, of_row, tokens.narrow(0, row, 1), {1});
      CHECK(at::equal(states.narrow(0, row, 1), expected));
      CHECK(at::equal(probabilities.narrow(0, row, 1),
                      model.log_probabilities(expected.narrow(1, 0, 1))));
    }
  }
}

}  // namespace ql::test
