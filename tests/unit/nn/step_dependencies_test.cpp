// Changes one input token at a time to find the tokens that the running model depends on, and
// compares them with the intervals that lib/net propagates.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/context.h"
#include "net/geometry.h"
#include "nn/model.h"
#include "unit/nn_dependency_cases.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

using test::DependencyCase;
using test::kCompressive;
using test::kQl;

// Returns the output states [batch, segment, d_model] of the last segment of streams [batch,
// length].
at::Tensor last_states(const nn::Model& model, const net::Geometry& geometry,
                       const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  const std::int64_t segment = geometry.lengths.segment;
  return test::read_states(model, geometry.lengths, tokens)
      .narrow(1, tokens.size(1) - segment, segment);
}

// Returns moves[x][p], which is true if a change of token x moves the state at position p of the
// last segment. In row x of the batch token x is replaced by the one `change` further in the
// vocabulary; the same batch without changes is the reference, so that equal values are equal to
// the last bit.
at::Tensor find_moves(const nn::Model& model, const net::Geometry& geometry, std::int64_t length,
                      std::uint64_t seed, std::int64_t change) {
  const std::int64_t vocab = model.network().vocab_size;
  const at::Tensor tokens = test::random_tokens(1, length, vocab, seed).repeat({length, 1});
  at::Tensor changed = tokens.clone();
  for (std::int64_t x = 0; x < length; ++x) {
    std::int64_t& id = changed.data_ptr<std::int64_t>()[x * length + x];
    id = (id + change) % vocab;
  }
  return last_states(model, geometry, tokens).ne(last_states(model, geometry, changed)).any(-1);
}

// Returns for every position the first token that moves its state, relative to the segment's first
// token. The impossible value `segment` stands for none.
std::vector<std::int64_t> oldest(const at::Tensor& moves) {
  const std::int64_t length = moves.size(0), segment = moves.size(1);
  std::vector<std::int64_t> result;
  for (std::int64_t position = 0; position < segment; ++position) {
    const at::Tensor tokens = moves.select(1, position).nonzero();
    result.push_back(tokens.numel() == 0 ? segment
                                         : tokens.min().item<std::int64_t>() - (length - segment));
  }
  return result;
}

// Checks the exact context with one limit on the keys that a query sees; `change` sets it.
void check_limit(const std::function<void(net::Network&)>& change) {
  net::Network network = test::small_network(kQl, {1, 1}, 1, {4, 8, 0});
  change(network);
  CAPTURE(net::network_to_json(network).dump());
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  const std::vector<std::int64_t> expected = net::oldest_dependencies(geometry);
  const std::int64_t length = (net::exact_context(network, network.lengths).maximum / 4 + 3) * 4;
  at::Tensor moves = at::zeros({length, 4}, at::kBool);
  for (std::uint64_t seed = 1; seed <= 2 || (seed <= 10 && oldest(moves) != expected); ++seed) {
    moves =
        moves.logical_or(find_moves(test::random_model(network, seed), geometry, length, seed, 5));
  }
  CHECK(oldest(moves) == expected);
}

// A vocabulary of pairs, id and id + kPairs, that are almost the same vector: replacing a token by
// its partner moves every state that is computed from it, but hardly any attention.
constexpr std::int64_t kPairs = 6;

nn::Model model_of_pairs(net::Network network, std::uint64_t seed) {
  network.vocab_size = 2 * kPairs;
  nn::Model model = test::random_model(network, seed);
  const at::NoGradGuard no_grad;
  for (const nn::NamedTensor& parameter : model.parameters()) {
    if (parameter.name == "word_emb.emb_layers.0.weight") {
      at::Tensor second = parameter.tensor.narrow(0, kPairs, kPairs);
      second.mul_(1e-7).add_(parameter.tensor.narrow(0, 0, kPairs));
    }
  }
  return model;
}

}  // namespace

TEST_CASE("forward: the model depends on exactly those tokens if queries see few keys") {
  check_limit([](net::Network& network) { network.same_length = true; });
  check_limit([](net::Network& network) { network.attention_window = 5; });
  check_limit([](net::Network& network) {
    network.attention_window = 3;
    network.attention_dilation = {1, 4};
  });
  check_limit([](net::Network& network) {
    network.attention_window = 2;
    network.attention_dilation = {3, 3};
  });
  check_limit([](net::Network& network) { network.attention = net::Attention::kLinear; });
}

TEST_CASE("forward: the model depends on exactly the tokens that lib/net computes") {
  for (const DependencyCase& entry : test::kDependencyCases) {
    for (const bool pre_lnorm : {true, false}) {
      net::Network network = test::network_of(entry);
      network.pre_lnorm = pre_lnorm;
      CAPTURE(net::to_text(entry.architecture));
      CAPTURE(net::to_text(entry.pool));
      CAPTURE(entry.lengths.segment);
      CAPTURE(entry.lengths.memory);
      CAPTURE(entry.scales.size());
      CAPTURE(pre_lnorm);
      const net::Geometry geometry = net::make_geometry(network, entry.lengths);
      const net::ContextLength exact = net::exact_context(network, entry.lengths);
      const std::int64_t segment = entry.lengths.segment;
      // The length has room for more than the expected context, in complete segments.
      const std::int64_t length = (exact.maximum / segment + 3) * segment;

      // A maximum or a ReLU may hide a token from one input: join the results of several.
      const std::vector<std::int64_t> expected = net::oldest_dependencies(geometry);
      at::Tensor moves = at::zeros({length, segment}, at::kBool);
      for (std::uint64_t seed = 1; seed <= 2 || (seed <= 10 && oldest(moves) != expected); ++seed) {
        const nn::Model model = test::random_model(network, seed);
        const std::int64_t change = 1 + static_cast<std::int64_t>(seed) % (network.vocab_size - 1);
        moves = moves.logical_or(find_moves(model, geometry, length, seed, change));
      }
      CHECK(oldest(moves) == expected);
      std::int64_t shortest = length, longest = 0;
      for (std::int64_t position = 0; position < segment; ++position) {
        const at::Tensor tokens = moves.select(1, position).nonzero();
        const std::int64_t here = length - segment + position;
        CHECK(tokens.max().item<std::int64_t>() == here);
        shortest = std::min(shortest, here - tokens.min().item<std::int64_t>());
        longest = std::max(longest, here - tokens.min().item<std::int64_t>());
      }
      CHECK(shortest == exact.minimum);
      CHECK(longest == exact.maximum);
    }
  }
}

TEST_CASE("forward: the most used states are computed from the tokens that lib/net computes") {
  for (const DependencyCase& entry : {DependencyCase{kCompressive, {1}, 0, {4, 6, 3}, 2},
                                      DependencyCase{kCompressive, {1}, 0, {6, 2, 1}, 2},
                                      DependencyCase{kCompressive, {2}, 0, {6, 1, 3}, 3},
                                      DependencyCase{kCompressive, {2}, 0, {4, 0, 5}, 2},
                                      DependencyCase{kCompressive, {2}, 0, {4, 3, 4}, 2}}) {
    net::Network network = test::network_of(entry);
    network.pool = net::Pool::kMostUsed;
    CAPTURE(entry.lengths.segment);
    CAPTURE(entry.lengths.memory);
    CAPTURE(entry.lengths.compressed_memory);
    const net::Geometry geometry = net::make_geometry(network, entry.lengths);
    const std::int64_t segment = entry.lengths.segment;
    const std::int64_t length =
        (net::exact_context(network, entry.lengths).maximum / segment + 4) * segment;
    // A stream shows only what its own choices reach: many together show the worst case.
    const std::vector<std::int64_t> expected = net::oldest_dependencies(geometry);
    at::Tensor moves = at::zeros({length, segment}, at::kBool);
    for (std::uint64_t seed = 1; seed <= 20 || (seed <= 200 && oldest(moves) != expected); ++seed) {
      const nn::Model model = model_of_pairs(network, seed);
      moves = moves.logical_or(find_moves(model, geometry, length, seed, kPairs));
    }
    CHECK(oldest(moves) == expected);
  }
}

TEST_CASE("forward: the choice of the most used states may depend on older tokens than they do") {
  const net::Lengths lengths{4, 2, 3};
  net::Network network = test::small_network(kCompressive, {1}, 0, lengths);
  network.pool = net::Pool::kMostUsed;
  const net::Geometry geometry = net::make_geometry(network, lengths);
  at::Tensor moves = at::zeros({40, 4}, at::kBool);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    moves = moves.logical_or(find_moves(test::random_model(network, seed), geometry, 40, seed, 5));
  }
  CHECK(oldest(moves).front() < net::oldest_dependencies(geometry).front());
  CHECK(geometry.keeps_most_used());
}

}  // namespace ql
