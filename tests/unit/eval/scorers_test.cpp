// Scorers of a stream as it comes and of independent units, and streams that are long enough to be
// computed in pieces.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/independent_scorer.h"
#include "unit/eval_support.h"
#include "unit/thread_count.h"

namespace ql::eval {
namespace {

// A stream has eight pieces of 256 states at a scale that has half as many states as tokens.
constexpr std::int64_t kStreamLength = 4500;

// Networks that differ in what is divided into pieces.
constexpr const char* kInPieces[] = {"two scales",       "Transformer-XL",     "adaptive softmax",
                                     "linear attention", "query-only pooling", "norm after the sum",
                                     "documents",        "wide coarse states", "convolution",
                                     "vanilla"};

// The documents of a long stream.
const Ids& starts() {
  static const Ids of_documents{0, 5, 6, 16, 1000, 2001, 2002, 4400};
  return of_documents;
}

struct Read {
  std::vector<double> losses;
  std::vector<double> likeliest;
};

Read read(const nn::Model& model, const Ids& ids, std::int64_t top = 0) {
  Read result;
  result.losses.resize(ids.size());
  EvaluationOptions options;
  options.lengths = model.network().lengths;
  options.top = top;
  options.sink = [&](const ScoredTargets& targets) {
    std::copy_n(targets.losses, targets.count, result.losses.begin() + targets.position);
    for (std::int64_t i = 0; i < targets.count * top; ++i) {
      result.likeliest.push_back(targets.likeliest[i].log_probability);
    }
  };
  evaluate(model, source_from(ids, starts), options);
  return result;
}

// The places after which units end: units of one token, of a segment, of one token less and more,
// and of many.
Ids ends_of_units() {
  Ids ends;
  for (const std::int64_t length : {1, 3, 4, 5, 1, 7, 8, 9, 2, 30, 1, 1, 6, 12, 41}) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + length);
  }
  return ends;
}

// After every `pause` tokens, everything that can be scored is scored.
void score_units_of(const nn::Model& model, const Ids& ids, std::optional<shard::TokenId> begin,
                    std::int64_t pause, Scored& scored) {
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  IndependentScorer scorer(at_lengths, "ids", begin, scored.options);
  std::int64_t targets = 0, put = 0;
  for (const std::int64_t end : ends_of_units()) {
    while (put < end) {
      targets += scorer.put(ids.at(static_cast<std::size_t>(put))) ? 1 : 0;
      if (++put % pause == 0) scorer.put_waiting();
    }
    scorer.end_unit();
  }
  scorer.finish();
  scored.evaluation = scorer.evaluation();
  CHECK(scored.evaluation.targets == targets);
}

}  // namespace

TEST_CASE("StreamScorer: computing in pieces gives the losses of a single stream" *
          doctest::test_suite("numeric")) {
  const test::WithThreads three(3);
  for (const char* name : kInPieces) {
    CAPTURE(name);
    const nn::Model model = test::random_model(networks().at(name), 3);
    const Ids ids = random_ids(kStreamLength, model.network().vocab_size);
    const std::vector<double> expected = read_stepwise(model, ids, starts());
    const std::vector<double> losses = read(model, ids).losses;
    double difference = 0;
    for (std::size_t i = 1; i < ids.size(); ++i) {
      difference = test::larger(difference, std::abs(losses[i] - expected[i]));
    }
    CHECK(difference < 1e-11);
  }
}

TEST_CASE("evaluate: an evaluation has the same bits for any number of threads" *
          doctest::test_suite("numeric")) {
  for (const char* name : kInPieces) {
    CAPTURE(name);
    net::Network wide = networks().at(name);
    wide.d_model = wide.d_inner = 100;
    wide.vocab_size = 900;
    wide.init_std = 0.1;
    if (!wide.scale_widths.empty()) wide.scale_widths = {100, 48};
    const nn::Model model = test::random_model(wide, 4, at::kFloat);
    const Ids ids = random_ids(kStreamLength, wide.vocab_size);
    const auto by_threads = [&](int threads) {
      const test::WithThreads with_threads(threads);
      return read(model, ids, 2);
    };
    const Read by_one = by_threads(1), by_two = by_threads(2), by_three = by_threads(3);
    CHECK(by_two.losses == by_one.losses);
    CHECK(by_three.losses == by_one.losses);
    CHECK(by_three.likeliest == by_one.likeliest);
  }
}

TEST_CASE("IndependentScorer: units have the losses and attention that they have one by one") {
  for_networks([](const net::Network& network, const nn::Model& model) {
    const Ids ids = random_ids(ends_of_units().back(), network.vocab_size);
    for (const std::optional<shard::TokenId> begin :
         {std::optional<shard::TokenId>(7), std::optional<shard::TokenId>()}) {
      std::vector<Piece> units;
      std::int64_t first = 0;
      for (const std::int64_t end : ends_of_units()) {
        units.push_back({{ids.begin() + first, ids.begin() + end}, first});
        if (begin) {
          units.back().ids.insert(units.back().ids.begin(), *begin);
          --units.back().position;
        }
        first = end;
      }
      const Expected expected = read_pieces(model, network.lengths, units, {});
      for (const std::int64_t chunk : {1, 13, 1000}) {
        for (const std::int64_t pause : {3, 1000}) {
          CAPTURE(chunk);
          CAPTURE(pause);
          const auto run = [&](Scored& scored) {
            scored.options.chunk = chunk;
            score_units_of(model, ids, begin, pause, scored);
          };
          check_reading(model, ids, expected, run);
          // Without a map of attention, short units are read side by side.
          Scored side_by_side(model);
          run(side_by_side);
          check_scored(side_by_side, ids, expected.losses);
        }
      }
    }
  });
}

TEST_CASE("IndependentScorer: options that make no sense for independent units are refused") {
  const nn::Model model = test::random_model(networks().at("vanilla"), 3);
  const nn::ModelAtLengths at_lengths(model, model.network().lengths);
  EvaluationOptions options;
  options.stride = 2;
  CHECK_THROWS_AS(IndependentScorer(at_lengths, "ids", std::nullopt, options), ConfigError);
  IndependentScorer scorer(at_lengths, "ids", std::nullopt, {});
  CHECK_THROWS_AS(scorer.put(11), Error);
}

TEST_CASE("StreamScorer: the losses are the same however the ids come and are scored") {
  const net::Network network = networks().at("two scales");
  const std::int64_t segment = network.lengths.segment;
  const nn::Model model = test::random_model(network, 3);
  const nn::ModelAtLengths at_lengths(model, network.lengths);
  constexpr std::int64_t kTokens = 61;
  const Ids ids = random_ids(kTokens, network.vocab_size);
  const Expected expected = read_pieces(model, network.lengths, pieces_of(ids, segment));
  // Puts the ids up to each of `splits` at once. `waiting`: what is pending is scored then.
  const auto check = [&](std::int64_t chunk, const Ids& splits, bool waiting) {
    CAPTURE(chunk);
    Scored scored(model);
    scored.options.chunk = chunk;
    StreamScorer scorer(at_lengths, "ids", scored.options);
    std::int64_t put = 0;
    for (const std::int64_t split : splits) {
      scorer.put(ids.data() + put, split - put);
      put = split;
      if (!waiting) continue;
      scorer.put_waiting();
      // All except the last token, which is only a target, and an incomplete segment.
      const std::int64_t segments = std::max<std::int64_t>(split - 1, 0) / segment;
      CHECK(static_cast<std::int64_t>(scored.losses.size()) == segments * segment);
    }
    scorer.put(ids.data() + put, kTokens - put);
    scorer.finish();
    scored.evaluation = scorer.evaluation();
    check_scored(scored, ids, expected.losses);
  };
  for (const std::int64_t piece : {1, 7, 64}) {
    Ids splits;
    for (std::int64_t split = piece; split < kTokens; split += piece) splits.push_back(split);
    for (const std::int64_t chunk : {1, 8, 30, 1000}) check(chunk, splits, false);
  }
  Ids every;
  for (std::int64_t split = 0; split <= kTokens; ++split) {
    check(40, {split}, true);
    every.push_back(split);
  }
  check(40, every, true);
}

}  // namespace ql::eval
