// Compares the unigram baseline with counts made by hand.
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "eval/unigram.h"
#include "unit/eval_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

Ids pattern(std::int64_t count, std::int64_t vocab_size) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(i * i % vocab_size);
  return ids;
}

TEST_CASE("Unigram: frequencies with one added to each") {
  const Unigram unigram(source_from({2, 2, 0, 2}), 4);
  CHECK(std::exp(-unigram.loss(0)) == doctest::Approx(2.0 / 8));
  CHECK(std::exp(-unigram.loss(1)) == doctest::Approx(1.0 / 8));
  CHECK(std::exp(-unigram.loss(2)) == doctest::Approx(4.0 / 8));
  CHECK(std::exp(-unigram.loss(3)) == doctest::Approx(1.0 / 8));
}

TEST_CASE("Unigram: probabilities sum to one, also without training data") {
  for (const std::int64_t length : {0, 1, 70'000}) {
    const Unigram unigram(source_from(pattern(length, 97)), 97);
    double sum = 0;
    for (std::int64_t id = 0; id < 97; ++id) sum += std::exp(-unigram.loss(id));
    CHECK(sum == doctest::Approx(1));
  }
}

TEST_CASE("Unigram: every token except the first is scored") {
  const Ids training = pattern(100'000, 51);
  const Ids test = pattern(70'001, 97);  // longer than one piece; some ids were never seen
  std::map<std::int64_t, double> counts;
  for (const std::int64_t id : training) counts[id] += 1;
  const Unigram unigram(source_from(training), 97);
  double nll = 0, squares = 0;
  for (std::size_t p = 1; p < test.size(); ++p) {
    const double loss = -std::log((counts[test[p]] + 1) / (100'000.0 + 97));
    nll += loss;
    squares += loss * loss;
  }
  std::vector<double> losses(test.size());
  std::int64_t next = 1;
  EvaluationOptions options;
  options.sink = [&](const ScoredTargets& targets) {
    CHECK(targets.position == next);
    next += targets.count;
    std::copy_n(targets.losses, targets.count, losses.begin() + targets.position);
  };
  const Evaluation result = unigram.evaluate(source_from(test), options);
  CHECK(next == 70'001);
  CHECK(result.targets == 70'000);
  CHECK(result.nll == doctest::Approx(nll));
  CHECK(result.squares == doctest::Approx(squares));
  CHECK(result.perplexity() == doctest::Approx(std::exp(nll / 70'000)));
  CHECK(std::accumulate(losses.begin(), losses.end(), 0.0) == doctest::Approx(nll));
}

TEST_CASE("Unigram: known figures leave <unk> out") {
  const Unigram unigram(source_from({2, 2, 0, 2}), 4);
  EvaluationOptions options;
  options.unknown = 3;
  const Evaluation result = unigram.evaluate(source_from({0, 2, 3, 0, 3}), options);
  CHECK(result.targets == 4);
  CHECK(result.known.targets == 2);
  CHECK(result.known.nll == doctest::Approx(-std::log(4.0 / 8) - std::log(2.0 / 8)));
  const Evaluation all = unigram.evaluate(source_from({0, 2, 3, 0, 3}));
  CHECK(all.known.targets == 4);
  CHECK(all.known.nll == all.nll);
}

TEST_CASE("Unigram: ids outside the vocabulary and streams without a target are refused") {
  CHECK_THROWS_AS(Unigram(source_from({0, 4}), 4), Error);
  const Unigram unigram(source_from({0, 1}), 4);
  CHECK_THROWS_AS(unigram.evaluate(source_from({0, 4})), Error);
  CHECK_THROWS_AS(unigram.evaluate(source_from({0})), Error);
}

}  // namespace
}  // namespace ql::eval
