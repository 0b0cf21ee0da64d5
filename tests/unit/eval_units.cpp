#include "eval/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/score_units.h"
#include "eval/stream_scorer.h"
#include "nn_support.h"
#include "scratch.h"
#include "torch_doctest.h"
#include "train_support.h"

namespace ql::eval {
namespace {

// "number: targets unknown nll", one unit a line.
struct Lines {
  std::string text;
  UnitSums::Sink sink() {
    return [this](const UnitSum& sum) {
      text += fmt::format("{}: {} {} {}\n", sum.number, sum.targets, sum.unknown, sum.nll);
    };
  }
};

}  // namespace

TEST_CASE("losses go to the unit of their token") {
  Lines lines;
  UnitSums sums(7, lines.sink());
  // a b | c <unk> d | | e: the third unit has no token.
  for (const int id : {1, 2}) sums.put_token(id);
  sums.end_unit();
  const double first[] = {0.5};
  sums.put_losses(1, first, 1);
  CHECK(lines.text.empty());
  for (const int id : {3, 7, 4}) sums.put_token(id);
  sums.end_unit();
  sums.end_unit();
  sums.put_token(5);
  const double second[] = {1, 2, 4, 8};
  sums.put_losses(2, second, 4);
  CHECK(lines.text == "1: 1 0 0.5\n2: 3 1 7\n3: 0 0 0\n");
  sums.finish();
  CHECK(lines.text == "1: 1 0 0.5\n2: 3 1 7\n3: 0 0 0\n4: 1 0 8\n");
}

TEST_CASE("a stream that ends with a unit has no further one") {
  Lines lines;
  UnitSums sums({}, lines.sink());
  sums.put_token(1);
  sums.end_unit();
  sums.finish();
  CHECK(lines.text == "1: 0 0 0\n");
}

TEST_CASE("units of a network that resets its memory add up to its evaluation") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(500, 23), 23, "made up", {3, 64, 65, 200, 333});
  net::Network network = test::tiny_ql();
  network.reset_memory_at_documents = true;
  const nn::Model model = test::random_model(network, 3, at::kDouble);
  shard::TokenReader reader(scratch / "data");
  EvaluationOptions whole;
  whole.lengths = network.lengths;
  const double expected = evaluate(model, source_of(reader), whole).nll;
  network.reset_memory_at_documents = false;
  const nn::Model other = test::random_model(network, 3, at::kDouble);
  CHECK(std::abs(evaluate(other, source_of(reader), whole).nll - expected) > 1e-3);
  UnitOptions options;
  options.lengths = network.lengths;
  options.unit = Unit::kDocument;
  for (const std::int64_t chunk : {0, 4, 20}) {
    options.chunk = chunk;
    double nll = 0;
    std::int64_t documents = 0;
    score_units(model, "model", {}, scratch / "data", options, [&](const UnitSum& sum) {
      nll += sum.nll;
      ++documents;
    });
    CHECK(documents == 6);
    CHECK(nll == doctest::Approx(expected).epsilon(1e-10));
  }
}

TEST_CASE("lines and documents of a packed folder add up to the whole") {
  constexpr std::int64_t kVocabulary = 23;
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(500, kVocabulary), kVocabulary);
  net::Network network = test::tiny_ql();
  network.vocab_size = kVocabulary;
  const nn::Model model = test::random_model(network, 3, at::kFloat);
  UnitOptions options;
  options.lengths = network.lengths;
  options.unit = Unit::kDocument;
  std::int64_t targets = 0, units = 0;
  double nll = 0;
  const auto add = [&](const UnitSum& sum) {
    CHECK(sum.number == ++units);
    targets += sum.targets;
    nll += sum.nll;
  };
  const UnitStudy study = score_units(model, "model", {}, scratch / "data", options, add);
  CHECK(targets == 499);
  CHECK(study.evaluation.targets == 499);
  CHECK(nll == doctest::Approx(study.evaluation.nll));
}

TEST_CASE("a scorer gives the same losses however the ids come") {
  const net::Network network = test::tiny_ql();
  net::Network sized = network;
  sized.vocab_size = 23;
  const nn::Model model = test::random_model(sized, 3, at::kDouble);
  const at::Tensor ids = test::random_tokens(1, 101, 23, 5);
  const auto losses = [&](std::int64_t chunk, std::int64_t piece) {
    StreamScorer scorer(model, sized.lengths, chunk);
    std::vector<double> all(101);
    const TargetSink sink = [&](std::int64_t position, const std::int64_t* targets,
                                const double* values, std::int64_t count) {
      CHECK(std::equal(targets, targets + count, ids.data_ptr<std::int64_t>() + position));
      std::copy_n(values, count, all.begin() + position);
    };
    for (std::int64_t begin = 0; begin < 101; begin += piece) {
      scorer.put(ids.data_ptr<std::int64_t>() + begin, std::min(piece, 101 - begin), sink);
    }
    scorer.finish(sink);
    return all;
  };
  const std::vector<double> expected = losses(1000, 101);
  for (const std::int64_t chunk : {1, 8, 30}) {
    for (const std::int64_t piece : {1, 7, 64}) {
      const std::vector<double> found = losses(chunk, piece);
      for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(std::abs(found[i] - expected[i]) < 1e-10);
      }
    }
  }
}

}  // namespace ql::eval
