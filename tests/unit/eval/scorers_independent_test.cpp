// Independent units that are scored together against one evaluation for each.
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "eval/scorers.h"
#include "unit/eval_support.h"

namespace ql::eval {
namespace {

using net::Architecture;

// Returns units of one token, of a segment, of one token less and more, and of many.
std::vector<Ids> units_of(std::int64_t vocab_size) {
  std::vector<Ids> units;
  const Ids all = random_ids(200, vocab_size);
  auto next = all.begin();
  for (const std::int64_t length : {1, 3, 4, 5, 1, 7, 8, 9, 2, 30, 1, 1, 6, 12, 41}) {
    units.emplace_back(next, next + length);
    next += length;
  }
  return units;
}

// The losses by position of the stream.
using Losses = std::map<std::int64_t, double>;

const Ids kFirst{0};
const Ids& first_document() { return kFirst; }

Losses one_by_one(const nn::Model& model, const std::vector<Ids>& units,
                  std::optional<shard::TokenId> begin) {
  Losses losses;
  std::int64_t position = 0;
  for (const Ids& unit : units) {
    Ids ids = unit;
    if (begin) ids.insert(ids.begin(), *begin);
    EvaluationOptions options;
    options.lengths = model.network().lengths;
    const std::int64_t before = position - (begin ? 1 : 0);
    options.sink = [&](std::int64_t at, const double* values, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) losses[before + at + i] = values[i];
    };
    if (ids.size() > 1) evaluate(model, source_from(ids, first_document), options);
    position += static_cast<std::int64_t>(unit.size());
  }
  return losses;
}

// After every `pause` tokens, everything that can be scored is scored.
Losses side_by_side(const nn::Model& model, const std::vector<Ids>& units,
                    std::optional<shard::TokenId> begin, std::int64_t chunk, std::int64_t pause) {
  Losses losses;
  std::int64_t targets = 0, tokens = 0;
  EvaluationOptions options;
  options.chunk = chunk;
  options.sink = [&](std::int64_t at, const double* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      CHECK((losses.empty() || losses.rbegin()->first < at + i));
      losses[at + i] = values[i];
    }
  };
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  IndependentScorer scorer(at_lengths, "ids", begin, options);
  for (const Ids& unit : units) {
    for (const std::int64_t id : unit) {
      targets += scorer.put(id) ? 1 : 0;
      if (++tokens % pause == 0) scorer.put_waiting();
    }
    scorer.end_unit();
  }
  scorer.finish();
  CHECK(scorer.evaluation().targets == targets);
  CHECK(static_cast<std::int64_t>(losses.size()) == targets);
  return losses;
}

std::vector<net::Network> family() {
  std::vector<net::Network> all{
      test::small_network(Architecture::kTransformerQl, {1, 1}, 1, {4, 12, 0}),
      test::small_network(Architecture::kTransformerQl, {1, 1, 1}, 1, {8, 4, 0}),
      test::small_network(Architecture::kTransformerXl, {2}, 0, {3, 5, 0}),
      test::small_network(Architecture::kCompressive, {2}, 0, {4, 4, 2}),
      test::small_network(Architecture::kCompressive, {2}, 0, {4, 4, 2}),
      test::small_network(Architecture::kMultiScale, {1, 1}, 1, {8, 0, 0}),
      test::small_network(Architecture::kVanilla, {2}, 0, {6, 0, 0}),
      test::small_network(Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0}),
      test::small_network(Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0})};
  all[4].pool = net::Pool::kMostUsed;
  all[7].reset_memory_at_documents = true;
  all[8].query_only_pooling = true;
  return all;
}

}  // namespace

TEST_CASE("IndependentScorer: units have the losses that they have one by one") {
  for (const net::Network& network : family()) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = test::random_model(network, 3);
    const std::vector<Ids> units = units_of(network.vocab_size);
    for (const std::optional<shard::TokenId> begin :
         {std::optional<shard::TokenId>(7), std::optional<shard::TokenId>()}) {
      const Losses expected = one_by_one(model, units, begin);
      for (const std::int64_t chunk : {1, 13, 1000}) {
        for (const std::int64_t pause : {3, 1000}) {
          CAPTURE(chunk);
          CAPTURE(pause);
          const Losses found = side_by_side(model, units, begin, chunk, pause);
          REQUIRE(found.size() == expected.size());
          for (const auto& [position, loss] : expected) {
            CAPTURE(position);
            CHECK(std::abs(found.at(position) - loss) < 1e-9);
          }
        }
      }
    }
  }
}

TEST_CASE("IndependentScorer: options that make no sense for independent units are refused") {
  const nn::Model model =
      test::random_model(test::small_network(Architecture::kVanilla, {2}, 0, {6, 0, 0}), 3);
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  EvaluationOptions options;
  options.stride = 2;
  CHECK_THROWS_AS(IndependentScorer(at_lengths, "ids", std::nullopt, options), ConfigError);
  IndependentScorer scorer(at_lengths, "ids", std::nullopt, {});
  CHECK_THROWS_AS(scorer.put(11), Error);
}

}  // namespace ql::eval
