// Evaluation in columns against the obvious reader: one stream, batch 1, segment by segment,
// beginning with the first token.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/columns.h"
#include "unit/eval_support.h"
#include "unit/float32_error.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

using net::Architecture;
using test::random_model;
using test::small_network;

constexpr std::int64_t kLength = 150;

struct Case {
  std::string name;
  net::Network network;
};

net::Network with(net::Network network, std::int64_t rate, net::Pool pool) {
  network.rate = rate;
  network.pool = pool;
  return network;
}

std::vector<Case> cases() {
  const auto ql = Architecture::kTransformerQl;
  net::Network post = small_network(Architecture::kTransformerXl, {2}, 0, {3, 5, 0});
  post.pre_lnorm = false;
  return {
      {"two scales", small_network(ql, {1, 1}, 1, {4, 4, 0})},
      {"three scales", small_network(ql, {1, 1, 1}, 1, {4, 8, 0})},
      {"mean pooling", with(small_network(ql, {1, 2}, 1, {4, 2, 0}), 2, net::Pool::kMean)},
      {"rate 4", with(small_network(ql, {1, 1}, 0, {4, 4, 0}), 4, net::Pool::kMax)},
      {"zero memory", small_network(ql, {2, 1}, 1, {4, 0, 0})},
      {"memory longer than segment", small_network(ql, {1, 1}, 1, {2, 8, 0})},
      {"Transformer-XL", small_network(Architecture::kTransformerXl, {3}, 0, {4, 6, 0})},
      {"post-norm Transformer-XL", post},
      {"segment of one", small_network(Architecture::kTransformerXl, {2}, 0, {1, 3, 0})},
      {"Multi-scale", small_network(Architecture::kMultiScale, {1, 1}, 1, {4, 0, 0})},
      {"vanilla", small_network(Architecture::kVanilla, {2}, 0, {4, 0, 0})},
      {"Compressive", small_network(Architecture::kCompressive, {2}, 0, {4, 6, 3})},
      {"Compressive, convolution, no memory",
       with(small_network(Architecture::kCompressive, {2}, 0, {6, 0, 3}), 3,
            net::Pool::kConvolution)},
      {"Compressive, dilated convolution, part of a step",
       with(small_network(Architecture::kCompressive, {2}, 0, {6, 4, 3}), 3,
            net::Pool::kDilatedConvolution)},
  };
}

// Some documents begin with a segment, others inside one.
const Ids kDocuments{0, 5, 6, 16, 17, 40, 72, 100, 101, 149};
const Ids& documents() { return kDocuments; }

// Returns the loss of ids[p] for every p >= first, with zero memories before segment `first` / n_s;
// 0 before. The end of the last segment is filled with a token of the vocabulary.
std::vector<double> read_single_stream(const nn::Model& model, const net::Lengths& lengths,
                                       const Ids& ids, std::int64_t first = 0) {
  const at::NoGradGuard no_gradient;
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(1);
  std::vector<double> losses(ids.size());
  const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
  for (std::int64_t begin = first; begin < inputs; begin += lengths.segment) {
    at::Tensor tokens = at::full({1, lengths.segment}, 3, at::kLong);
    at::Tensor targets = tokens.clone();
    for (std::int64_t i = 0; i < lengths.segment && begin + i < inputs; ++i) {
      tokens[0][i] = ids.at(static_cast<std::size_t>(begin + i));
      targets[0][i] = ids.at(static_cast<std::size_t>(begin + i + 1));
    }
    nn::StepOptions step;
    if (model.network().reset_memory_at_documents) {
      step.document_offsets = {
          begin - *(std::upper_bound(kDocuments.begin(), kDocuments.end(), begin) - 1)};
    }
    const at::Tensor states = at_lengths.forward(tokens, memory, step);
    const at::Tensor segment_losses = model.losses(states, targets);
    for (std::int64_t i = 0; i < lengths.segment && begin + i < inputs; ++i) {
      losses.at(static_cast<std::size_t>(begin + i + 1)) = segment_losses[0][i].item<double>();
    }
  }
  return losses;
}

constexpr shard::TokenId kUnknown = 4;

struct Scored {
  Evaluation evaluation;
  std::vector<double> losses;  // by position
  std::vector<int> times;      // how often each position was handed to the sink
};

Scored score(const nn::Model& model, const net::Lengths& lengths, const Ids& ids,
             std::int64_t batch, std::int64_t chunk = 0) {
  Scored scored{{}, std::vector<double>(ids.size()), std::vector<int>(ids.size())};
  EvaluationOptions options;
  options.lengths = lengths;
  options.batch = batch;
  options.chunk = chunk;
  options.unknown = kUnknown;
  options.sink = [&scored](std::int64_t position, const double* losses, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      scored.losses.at(static_cast<std::size_t>(position + i)) = losses[i];
      ++scored.times.at(static_cast<std::size_t>(position + i));
    }
  };
  scored.evaluation = evaluate(model, source_from(ids, documents), options);
  return scored;
}

void check_scored(const Scored& scored, const Ids& ids, const std::vector<double>& expected,
                  double tolerance) {
  const auto length = static_cast<std::int64_t>(scored.losses.size());
  CHECK(scored.evaluation.targets == length - 1);
  CHECK(scored.times.front() == 0);
  CHECK(std::all_of(scored.times.begin() + 1, scored.times.end(), [](int n) { return n == 1; }));
  double worst = 0, nll = 0, squares = 0;
  LossSums known;
  for (std::size_t p = 1; p < scored.losses.size(); ++p) {
    worst = std::max(worst, std::abs(scored.losses[p] - expected.at(p)));
    nll += expected[p];
    squares += expected[p] * expected[p];
    if (ids.at(p) != kUnknown) known.add(expected[p]);
  }
  CHECK(scored.evaluation.known.targets == known.targets);
  CHECK(scored.evaluation.known.nll == doctest::Approx(known.nll).epsilon(tolerance));
  CHECK(scored.evaluation.known.squares == doctest::Approx(known.squares).epsilon(tolerance));
  CHECK(worst <= tolerance);
  CHECK(scored.evaluation.nll == doctest::Approx(nll).epsilon(tolerance));
  CHECK(scored.evaluation.squares == doctest::Approx(squares).epsilon(tolerance));
}

// By causality the losses of a shorter stream are the first ones of the longer.
void check_prefixes(const nn::Model& model, const Ids& ids, const std::vector<double>& expected,
                    double tolerance) {
  const net::Lengths lengths = model.network().lengths;
  const std::int64_t n_s = lengths.segment;
  for (const std::int64_t length :
       {std::int64_t{2}, n_s, n_s + 1, n_s + 2, 11 * n_s + 1, kLength}) {
    if (length < 2) continue;
    const Ids prefix(ids.begin(), ids.begin() + length);
    for (const std::int64_t batch : {0, 1, 2, 5, 1000}) {
      CAPTURE(length);
      CAPTURE(batch);
      check_scored(score(model, lengths, prefix, batch), prefix, expected, tolerance);
    }
    for (const std::int64_t chunk : {std::int64_t{1}, 2 * n_s, 3 * n_s + 1, 7 * n_s}) {
      CAPTURE(length);
      CAPTURE(chunk);
      check_scored(score(model, lengths, prefix, 0, chunk), prefix, expected, tolerance);
    }
  }
}

void check_case(const Case& the_case) {
  CAPTURE(the_case.name);
  const nn::Model model = random_model(the_case.network, 7);
  const Ids ids = random_ids(kLength, the_case.network.vocab_size);
  check_prefixes(model, ids, read_single_stream(model, the_case.network.lengths, ids), 1e-9);
}

// Compares both ways of evaluation with float64: the error of layer by layer may be at most a fixed
// multiple of the single stream's (float32_error.h).
void check_float32_case(const Case& the_case) {
  CAPTURE(the_case.name);
  const nn::Model narrow = random_model(the_case.network, 7, at::kFloat);
  const nn::Model wide(the_case.network, at::kDouble);
  for (std::size_t i = 0; i < wide.parameters().size(); ++i) {
    const at::NoGradGuard no_gradient;
    at::Tensor(wide.parameters()[i].tensor).copy_(narrow.parameters()[i].tensor);
  }
  const net::Lengths lengths = the_case.network.lengths;
  const Ids ids = random_ids(kLength, the_case.network.vocab_size);
  const std::vector<double> exact = read_single_stream(wide, lengths, ids);
  const std::vector<double> stream = read_single_stream(narrow, lengths, ids);
  double error = 0, largest = 0;
  for (std::size_t p = 0; p < exact.size(); ++p) {
    error = std::max(error, std::abs(stream[p] - exact[p]));
    largest = std::max(largest, exact[p]);
  }
  const double least = test::kLeastError * std::numeric_limits<float>::epsilon() * largest;
  check_prefixes(narrow, ids, exact, test::kErrorFactor * error + least);
}

TEST_CASE("evaluate: losses equal those of a single stream in float64") {
  for (const Case& the_case : cases()) check_case(the_case);
}

TEST_CASE("evaluate: with the pool most-used the same states are kept as in a single stream") {
  const Case the_case{
      "Compressive, most used",
      with(small_network(Architecture::kCompressive, {2}, 0, {4, 3, 3}), 2, net::Pool::kMostUsed)};
  check_case(the_case);
  const nn::Model model = random_model(the_case.network, 7);
  const Ids ids = random_ids(kLength, the_case.network.vocab_size);
  // Only the complete stream warms a column.
  CHECK(score(model, the_case.network.lengths, ids, 5).evaluation.batch == 1);
  CHECK(score(model, the_case.network.lengths, ids, 5).evaluation.warm_up == 0);
}

TEST_CASE("evaluate: losses equal those of a single stream with memory reset at documents") {
  for (Case& the_case : cases()) {
    const Architecture architecture = the_case.network.architecture;
    if (architecture != Architecture::kMultiScale && architecture != Architecture::kVanilla) {
      the_case.network.reset_memory_at_documents = true;
      check_case(the_case);
    }
  }
}

TEST_CASE("evaluate: losses equal those of a single stream in float32" *
          doctest::test_suite("numeric")) {
  check_float32_case(cases()[1]);
  check_float32_case(cases()[6]);
}

TEST_CASE("evaluate: lengths may differ from those of training") {
  const net::Network network = cases()[0].network;
  const nn::Model model = random_model(network, 9);
  const Ids ids = random_ids(kLength, network.vocab_size);
  for (const net::Lengths lengths : {net::Lengths{2, 6, 0}, net::Lengths{8, 0, 0}}) {
    const std::vector<double> expected = read_single_stream(model, lengths, ids);
    check_scored(score(model, lengths, ids, 0, 24), ids, expected, 1e-9);
    check_scored(score(model, lengths, ids, 4), ids, expected, 1e-9);
  }
}

TEST_CASE("warm_up_segments: one segment of warm-up less would be noticed") {
  for (const Case& the_case : cases()) {
    CAPTURE(the_case.name);
    const net::Lengths lengths = the_case.network.lengths;
    const std::int64_t warm_up =
        warm_up_segments(net::make_geometry(the_case.network, lengths)) * lengths.segment;
    if (warm_up == 0) continue;
    const nn::Model model = random_model(the_case.network, 7);
    const Ids ids = random_ids(kLength, the_case.network.vocab_size);
    const std::vector<double> expected = read_single_stream(model, lengths, ids);
    double worst = 0;
    for (std::int64_t start = warm_up; worst < 1e-6 && start + lengths.segment < kLength;
         start += lengths.segment) {
      const Ids prefix(ids.begin(), ids.begin() + start + lengths.segment + 1);
      const std::vector<double> late =
          read_single_stream(model, lengths, prefix, start - warm_up + lengths.segment);
      for (std::int64_t i = 1; i <= lengths.segment; ++i) {
        const auto p = static_cast<std::size_t>(start + i);
        worst = std::max(worst, std::abs(late.at(p) - expected.at(p)));
      }
    }
    CHECK(worst >= 1e-6);
  }
}

TEST_CASE("evaluate: tokens that were read twice are counted") {
  const net::Network network = cases()[6].network;
  const nn::Model model = random_model(network, 7);
  const Ids ids = random_ids(4 * 25 + 1, network.vocab_size);
  const Evaluation result = score(model, network.lengths, ids, 3).evaluation;
  CHECK(result.batch == 3);
  CHECK(result.warm_up == 2 * 6 * 4);
  CHECK(result.seconds > 0);
}

TEST_CASE("losses_in_blocks: a softmax of several blocks keeps its order" *
          doctest::test_suite("numeric")) {
  net::Network network = small_network(Architecture::kVanilla, {1}, 0, {4, 0, 0});
  network.vocab_size = 200'000;  // 41 rows a block, 64 rows a step
  const nn::Model model = random_model(network, 3, at::kFloat);
  const Ids ids = random_ids(65, network.vocab_size);
  check_scored(score(model, network.lengths, ids, 16), ids,
               read_single_stream(model, network.lengths, ids), 1e-4);
}

TEST_CASE("evaluate: input that cannot be evaluated is refused") {
  const net::Network network = cases()[0].network;
  const nn::Model model = random_model(network, 7);
  CHECK_THROWS_WITH_AS(
      score(model, network.lengths, {}, 0),
      "ids: expected at least 2 tokens, found 0; the first token is never predicted, so "
      "a single one cannot be scored",
      Error);
  CHECK_THROWS_AS(score(model, network.lengths, {1}, 0), Error);
  for (const std::int64_t wrong : {std::int64_t{-1}, network.vocab_size}) {
    Ids ids = random_ids(20, network.vocab_size);
    ids.back() = wrong;  // a target, never an input
    CHECK_THROWS_AS(score(model, network.lengths, ids, 2), Error);
    ids.back() = 0;
    ids.front() = wrong;  // an input, never a target
    CHECK_THROWS_AS(score(model, network.lengths, ids, 2), Error);
  }
  CHECK_THROWS_AS(score(model, {3, 0, 0}, {1, 2, 3}, 0), ConfigError);
}

TEST_CASE("evaluate: progress ends with every target") {
  const net::Network network = cases()[0].network;
  const nn::Model model = random_model(network, 7);
  const Ids ids = random_ids(50, network.vocab_size);
  EvaluationOptions options;
  options.lengths = network.lengths;
  std::vector<std::int64_t> seen;
  options.progress = [&seen](std::int64_t done) { seen.push_back(done); };
  evaluate(model, source_from(ids, documents), options);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == 49);
}

}  // namespace
}  // namespace ql::eval
