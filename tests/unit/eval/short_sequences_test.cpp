// Compares short sequences that are read side by side with each of them read by itself.
#include "eval/short_sequences.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "machine/device.h"
#include "machine/tensor_memory.h"
#include "unit/drawn_networks.h"
#include "unit/eval_support.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

// Returns the states of `count` random sequences, one after the other, and the same from a network
// that reads the sequences one by one.
struct Both {
  at::Tensor states, expected;
};

Both read_both(const nn::Model& model, std::int64_t count, std::optional<shard::TokenId> begin) {
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  const std::int64_t segment = at_lengths.geometry().lengths.segment;
  const at::Tensor tokens = test::random_tokens(count, segment, model.network().vocab_size, 5);
  if (begin) tokens.narrow(1, 0, 1).fill_(static_cast<std::int64_t>(*begin));
  std::vector<ShortSequence> sequences;
  std::vector<at::Tensor> expected;
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t length = 1 + (i * 5) % segment, first = i % length;
    sequences.push_back({tokens[i].data_ptr<std::int64_t>(), length, first, row});
    row += length - first;
    nn::Memory memory = at_lengths.start_memory(1);
    expected.push_back(at_lengths.forward_stream(tokens.narrow(0, i, 1), memory, {0})[0].narrow(
        0, first, length - first));
  }
  at::Tensor states = at::empty({row, model.network().d_model}, model.options());
  read_side_by_side(at_lengths, begin, sequences, states);
  return {states, at::cat(expected)};
}

}  // namespace

TEST_CASE("read_side_by_side: states are those of each sequence by itself") {
  const at::NoGradGuard no_gradient;
  std::uint64_t seed = 0;
  for (const net::Network& network : test::drawn_networks(15, 2, 40)) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = test::random_model(network, ++seed);
    for (const std::optional<shard::TokenId> begin :
         {std::optional<shard::TokenId>(1), std::optional<shard::TokenId>()}) {
      const Both cpu = read_both(model, 9, begin);
      CHECK(test::largest_difference(cpu.states, cpu.expected) < 1e-10);
      const machine::OperationsOnly as_on_a_gpu;
      const Both gpu = read_both(model, 9, begin);
      CHECK(test::largest_difference(gpu.states, gpu.expected) < 1e-10);
    }
  }
}

TEST_CASE("read_side_by_side: sequences share their memory") {
  const at::NoGradGuard no_gradient;
  constexpr std::int64_t kMemory = 4096, kSequences = 64;
  net::Network network = test::small_network(test::kXl, {1}, 0, {4, kMemory, 0});
  const std::vector<std::int64_t> tokens(2, 3);
  for (const bool resets : {false, true}) {
    CAPTURE(resets);
    network.reset_memory_at_documents = resets;
    const nn::Model model = test::random_model(network, 2);
    const nn::ModelAtLengths at_lengths(model, network.lengths);
    std::vector<ShortSequence> sequences;
    for (std::int64_t i = 0; i < kSequences; ++i) sequences.push_back({tokens.data(), 2, 0, 2 * i});
    at::Tensor states = at::empty({2 * kSequences, network.d_model}, model.options());
    machine::MemoryCount count(std::int64_t{1} << 40);
    read_side_by_side(at_lengths, std::nullopt, sequences, states);
    CHECK(count.peak() < kSequences * kMemory * network.d_model * std::int64_t{sizeof(double)} / 2);
  }
}

}  // namespace ql::eval
