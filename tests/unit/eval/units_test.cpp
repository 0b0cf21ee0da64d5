// Tests the sums of losses by unit, and the scoring of a stream by lines, documents, words or
// tokens.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/evaluate.h"
#include "eval/units.h"
#include "unit/nn_support.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"

namespace ql::eval {
namespace {

// "number: targets unknown_targets nll", one unit a line.
struct Lines {
  std::string text;
  UnitSums::Sink sink() {
    return [this](const UnitSum& sum) {
      text += fmt::format("{}: {} {} {}\n", sum.number, sum.targets, sum.unknown_targets, sum.nll);
    };
  }
};

constexpr shard::TokenId kEos = 0, kUnknown = 1;

net::Network words_network() {
  net::Network network = test::tiny_ql();
  network.vocab_size = 23;
  return network;
}

// Packs `ids` as words, with <eos> and <unk>; documents start at 0 and `starts`.
void pack_words(const std::filesystem::path& folder, const std::vector<shard::TokenId>& ids,
                const std::vector<std::int64_t>& starts = {}) {
  shard::StreamHeader header;
  header.vocabulary.size = 23;
  header.vocabulary.hash = "made up";
  header.vocabulary.type = "word";
  header.vocabulary.eos = kEos;
  header.vocabulary.unk = kUnknown;
  shard::PackWriter writer(folder, header, {});
  writer.begin_document();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::count(starts.begin(), starts.end(), static_cast<std::int64_t>(i)) > 0) {
      writer.begin_document();
    }
    writer.write(&ids[i], 1);
  }
  writer.finish(std::nullopt);
}

std::vector<UnitSum> units_of(const nn::Model& model, const std::filesystem::path& folder,
                              Unit unit) {
  UnitOptions options;
  options.unit = unit;
  options.lengths = model.network().lengths;
  options.chunk = 8;
  std::vector<UnitSum> units;
  score_units(model, "model", {}, folder, options,
              [&](const UnitSum& sum) { units.push_back(sum); });
  return units;
}

// Returns for each unit the position after its last token.
std::vector<std::int64_t> ends_of(const nn::Model& model, const std::filesystem::path& folder,
                                  Unit unit) {
  std::vector<std::int64_t> ends;
  for (const UnitSum& sum : units_of(model, folder, unit)) {
    // The first token is not a target.
    ends.push_back((ends.empty() ? 1 : ends.back()) + sum.targets);
  }
  return ends;
}

}  // namespace

TEST_CASE("UnitSums: losses go to the unit of their token") {
  Lines lines;
  UnitSums sums(7, lines.sink());
  // <unk> b | c <unk> d | | e: the third unit has no token, and the first token is not a target.
  sums.put_token(7, false);
  sums.put_token(2, true);
  sums.end_unit();
  CHECK(lines.text.empty());
  // The last loss of a unit is enough: no later token needs to be scored.
  const double first[] = {0.5};
  sums.put_losses(1, first, 1);
  CHECK(lines.text == "1: 1 0 0.5\n");
  for (const int id : {3, 7, 4}) sums.put_token(id, true);
  sums.end_unit();
  sums.end_unit();
  sums.put_token(5, true);
  const double second[] = {1, 2, 4, 8};
  sums.put_losses(2, second, 2);
  CHECK(lines.text == "1: 1 0 0.5\n");
  sums.put_losses(4, second + 2, 2);
  CHECK(lines.text == "1: 1 0 0.5\n2: 3 1 7\n3: 0 0 0\n");
  sums.finish();
  CHECK(lines.text == "1: 1 0 0.5\n2: 3 1 7\n3: 0 0 0\n4: 1 0 8\n");
}

TEST_CASE("UnitSums: a unit whose end comes after its losses is handed over then") {
  Lines lines;
  UnitSums sums({}, lines.sink());
  sums.put_token(1, false);
  sums.put_token(2, true);
  const double losses[] = {0.5};
  sums.put_losses(1, losses, 1);
  CHECK(lines.text.empty());
  sums.end_unit();
  CHECK(lines.text == "1: 1 0 0.5\n");
}

TEST_CASE("score_units: doubled lines, wherever the stream begins") {
  const nn::Model model = test::random_model(words_network(), 3, at::kFloat);
  struct Case {
    std::vector<shard::TokenId> ids;
    std::vector<std::int64_t> ends;
  };
  const std::vector<Case> cases = {
      {{0, 2, 0, 0, 3, 0, 0, 4, 0}, {3, 6, 9}},  // from the beginning of a line
      {{2, 0, 0, 3, 0, 0, 4, 0}, {2, 5, 8}},     // inside a line
      {{0, 0, 2, 0, 0, 3, 0}, {2, 4, 7}},        // at the end of a line: right after the next one
      {{0, 2, 0, 0, 0, 0, 3, 0}, {3, 5, 8}},     // an empty line
      {{0, 2, 0, 0, 3}, {3, 5}},                 // a line that was not finished
      {{2, 3, 0, 4, 0, 5, 6, 0}, {3, 5, 8}},     // one <eos> a line
      {{2, 0, 0, 3, 0, 4, 0}, {2, 5, 7}},        // and an empty line: part of the next one
  };
  for (const Case& one : cases) {
    const test::ScratchFolder scratch;
    pack_words(scratch / "data", one.ids);
    CHECK(ends_of(model, scratch / "data", Unit::kDoubledLine) == one.ends);
  }
}

TEST_CASE("score_units: the loss of a unit is the sum of its tokens' losses" *
          doctest::test_suite("numeric")) {
  const test::ScratchFolder scratch;
  std::vector<shard::TokenId> ids = test::scrambled(300, 23);
  for (std::size_t i = 0; i < ids.size(); i += 7) ids[i] = i % 3 == 0 ? kUnknown : kEos;
  const std::vector<std::int64_t> starts = {3, 64, 65, 200, 299};
  pack_words(scratch / "data", ids, starts);
  const nn::Model model = test::random_model(words_network(), 3, at::kDouble);
  shard::MultiReader reader({(scratch / "data").string()});
  std::vector<double> losses(ids.size(), 0);
  EvaluationOptions options;
  options.lengths = model.network().lengths;
  options.sink = [&](const ScoredTargets& targets) {
    std::copy_n(targets.losses, targets.count, losses.begin() + targets.position);
  };
  evaluate(model, source_of(reader), options);

  for (const Unit unit : {Unit::kLine, Unit::kDoubledLine, Unit::kDocument}) {
    CAPTURE(static_cast<int>(unit));
    // These are the positions after the last tokens, split by hand.
    std::vector<std::int64_t> ends;
    bool inside = false;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto next = static_cast<std::int64_t>(i) + 1;
      const bool is_eos = ids[i] == kEos;
      const bool ends_line = is_eos && (unit == Unit::kLine || inside);
      inside = !ends_line;
      const bool ends_document = std::count(starts.begin(), starts.end(), next) > 0;
      if (unit == Unit::kDocument ? ends_document : ends_line) ends.push_back(next);
    }
    if (ends.back() < 300) ends.push_back(300);
    const std::vector<UnitSum> units = units_of(model, scratch / "data", unit);
    REQUIRE(units.size() == ends.size());
    REQUIRE(units.size() >= 6);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < units.size(); ++i) {
      double nll = 0;
      std::int64_t targets = 0, unknown_targets = 0;
      for (std::int64_t at = std::max<std::int64_t>(begin, 1); at < ends[i]; ++at) {
        nll += losses[static_cast<std::size_t>(at)];
        unknown_targets += ids[static_cast<std::size_t>(at)] == kUnknown ? 1 : 0;
        ++targets;
      }
      begin = ends[i];
      CHECK(units[i].number == static_cast<std::int64_t>(i) + 1);
      CHECK(units[i].targets == targets);
      CHECK(units[i].unknown_targets == unknown_targets);
      CHECK(units[i].nll == doctest::Approx(nll).epsilon(1e-10));
    }
  }
}

TEST_CASE("score_units: data of a larger vocabulary are refused") {
  const test::ScratchFolder scratch;
  net::Network network = words_network();
  network.vocab_size = 20;
  const nn::Model model = test::random_model(network, 3, at::kFloat);
  pack_words(scratch / "data", {2, 3, 0, 19, 20, 0});
  CHECK_THROWS_WITH_AS(
      units_of(model, scratch / "data", Unit::kLine),
      doctest::Contains(
          "data: its vocabulary (23 entries, word, eos 0, unk 1, hash made up) is not that of "),
      Error);
}

TEST_CASE("score_units: progress is reported after every chunk") {
  const test::ScratchFolder scratch;
  pack_words(scratch / "data", test::scrambled(101, 23));
  const nn::Model model = test::random_model(words_network(), 3, at::kFloat);
  std::vector<std::int64_t> reported;
  UnitOptions options;
  options.lengths = model.network().lengths;
  options.chunk = 40;
  options.progress = [&](std::int64_t done) { reported.push_back(done); };
  score_units(model, "model", {}, scratch / "data", options, [](const UnitSum&) {});
  CHECK(reported == std::vector<std::int64_t>{40, 80, 100});
}

TEST_CASE("UnitSums: a stream that ends with a unit has no further one") {
  Lines lines;
  UnitSums sums({}, lines.sink());
  sums.put_token(1, false);
  sums.end_unit();
  sums.finish();
  CHECK(lines.text == "1: 0 0 0\n");
}

TEST_CASE("score_units: units of a network that resets its memory add up to its evaluation") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(500, 23), 23, "made up", {3, 64, 65, 200, 333});
  net::Network network = test::tiny_ql();
  network.reset_memory_at_documents = true;
  const nn::Model model = test::random_model(network, 3, at::kDouble);
  shard::MultiReader reader({(scratch / "data").string()});
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
    std::vector<std::int64_t> targets;
    score_units(model, "model", {}, scratch / "data", options, [&](const UnitSum& sum) {
      nll += sum.nll;
      targets.push_back(sum.targets);
    });
    CHECK(targets == std::vector<std::int64_t>{2, 61, 1, 135, 133, 167});
    CHECK(nll == doctest::Approx(expected).epsilon(1e-10));
  }
}

TEST_CASE("line_end_of: <eos>, or the line feed of vocabularies that have one") {
  const auto end = [](const std::string& type, std::optional<shard::TokenId> eos,
                      const std::string& tokens) {
    shard::VocabularyInfo vocabulary;
    vocabulary.type = type;
    vocabulary.eos = eos;
    return line_end_of(vocabulary, [&] {
      return tokens.empty() ? "" : fmt::format(R"({{"type": "{}", "tokens": [{}]}})", type, tokens);
    });
  };
  using Found = std::optional<shard::TokenId>;
  CHECK(end("word", 3, "") == Found(3));
  CHECK(end("char", 0, R"("<eos>", "\n")") == Found(0));
  CHECK(end("word", {}, R"("a", "\n")") == Found());
  CHECK(end("", {}, "") == Found());
  CHECK(end("char", {}, R"("a", "b", "\n")") == Found(2));
  CHECK(end("char", {}, R"("a", "<0x0A>")") == Found());
  CHECK(end("byte", {}, R"("<0x09>", "<0x0A>")") == Found(1));
  CHECK(end("piece", {}, R"("a", "\n")") == Found(1));
  CHECK(end("sentencepiece", {}, R"("<0x0A>", "a", "\n")") == Found(2));
  CHECK(end("sentencepiece", {}, R"("a", "<0x0A>")") == Found(1));
  CHECK(end("sentencepiece", {}, R"("a")") == Found());
}

TEST_CASE("score_units: data of one document is one unit") {
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
  const UnitScores sweep = score_units(model, "model", {}, scratch / "data", options, add);
  CHECK(units == 1);
  CHECK(targets == 499);
  CHECK(sweep.evaluation.targets == 499);
  CHECK(nll == doctest::Approx(sweep.evaluation.nll));
}

}  // namespace ql::eval
