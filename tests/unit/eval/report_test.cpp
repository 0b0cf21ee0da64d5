// Compares the rows of results with figures worked out by hand, and checks how rows are printed.
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rows.h"
#include "eval/report.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

net::Network paper_network() {
  net::Network network;
  network.vocab_size = 100;
  network.d_model = 8;
  network.n_head = 2;
  network.d_head = 4;
  network.d_inner = 8;
  network.scales = {3, 3};
  network.output_layers = 2;
  network.lengths = {4, 12, 0};
  return network;
}

DataSet data_set(std::int64_t tokens) {
  DataSet data;
  data.name = "data/test";
  data.source.tokens = tokens;
  return data;
}

// Returns four targets with losses 1, 2, 3, 6 nats.
Evaluation four_losses() {
  Evaluation result;
  result.targets = 4;
  result.nll = 12;
  result.squares = 50;
  result.known.targets = 3;  // without the target of 6 nats
  result.known.nll = 6;
  result.known.squares = 14;
  result.warm_up = 8;
  result.seconds = 0.5;
  return result;
}

TEST_CASE("LossSums: mean, perplexity and standard error") {
  const Evaluation result = four_losses();
  CHECK(result.mean() == 3);
  CHECK(result.perplexity() == doctest::Approx(std::exp(3)));
  // sample variance (4 + 1 + 0 + 9) / 3, divided by 4
  CHECK(result.standard_error() == doctest::Approx(std::sqrt(14.0 / 3 / 4)));
  LossSums single;
  single.targets = 1;
  single.nll = 2;
  single.squares = 4;
  CHECK(std::isnan(single.standard_error()));
}

TEST_CASE("report_row: a row of a network holds settings, context and counts") {
  DataSet data = data_set(5);
  data.counts = shard::TextCounts{48, 40, 6, 2, 1};
  const Json row = report_row({"runs/ql", paper_network(), {4, 12, 0}, 1234}, data, four_losses());
  CHECK(row["checkpoint"] == "runs/ql");
  CHECK(row["data"] == "data/test");
  CHECK(row["arch"] == "ql");
  CHECK(row["parameters"] == 1234);
  CHECK(row["segment"] == 4);
  CHECK(row["memory"] == 12);
  CHECK(row["context"] == 138);
  CHECK(row["context_min"] == 136);
  CHECK(row["context_max"] == 139);
  CHECK(row["tokens"] == 5);
  CHECK(row["targets"] == 4);
  CHECK(row["unknown"] == 1);
  CHECK(row["unknown_rate"] == 0.2);
  CHECK(row["word_perplexity"].get<double>() == doctest::Approx(std::exp(2)));
  CHECK(row["byte_perplexity"].get<double>() == doctest::Approx(std::exp(0.25)));
  CHECK(row["bits_per_byte"].get<double>() == doctest::Approx(0.25 / std::log(2)));
  CHECK(row["bits_per_character"].get<double>() == doctest::Approx(0.3 / std::log(2)));
  CHECK(row["warm_up"] == 8);
  CHECK(row["tokens_per_second"] == 8);
}

TEST_CASE("qleval(1): describes every column") {
  const std::string page = read_file(QL_TEST_DATA "/../man/qleval.1");
  const std::size_t begin = page.find(".Ss Columns");
  std::istringstream lines(page.substr(begin, page.find(".El", begin) - begin));
  std::set<std::string> listed;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(".It ", 0) != 0) continue;
    std::istringstream names(line.substr(4));
    for (std::string name; names >> name;) {
      if (name != ",") listed.insert(name);
    }
  }
  std::set<std::string> columns;
  const Json row = report_row({"a", std::nullopt, {}, 1}, data_set(5), four_losses());
  for (const auto& [name, value] : row.items()) columns.insert(name);
  CHECK(listed == columns);
}

// Two units of three tokens without a begin token: there are no losses of the two first tokens.
TEST_CASE(
    "report_row: losses without the first tokens of units are not divided by all words and bytes") {
  DataSet data = data_set(6);
  data.counts = shard::TextCounts{48, 40, 6, 2, 1};
  data.vocabulary.type = "word";
  data.vocabulary.unk = 3;
  Evaluation result = four_losses();
  result.reset_at = "line";
  const Json row = report_row({"runs/ql", paper_network(), {4, 12, 0}, 1234}, data, result);
  for (const char* key : {"word_perplexity", "byte_perplexity", "bits_per_byte",
                          "bits_per_character", "known_word_perplexity", "known_bits_per_byte"}) {
    CAPTURE(key);
    CHECK(row[key].is_null());
  }
  CHECK(row["words"] == 6);
  CHECK(row["perplexity"].get<double>() == doctest::Approx(std::exp(3)));
  CHECK(row["known_perplexity"].get<double>() == doctest::Approx(std::exp(2)));
  // With begin tokens every token is a target; a single unit is a stream.
  for (const std::int64_t tokens : {4, 5}) {
    data.source.tokens = tokens;
    CHECK(report_row({"a", paper_network(), {4, 12, 0}, 1}, data, result)["bits_per_byte"]
              .get<double>() == doctest::Approx(0.25 / std::log(2)));
  }
}

TEST_CASE("report_row: figures with and without <unk>") {
  DataSet data = data_set(5);
  data.counts = shard::TextCounts{48, 40, 6, 2, 1};
  data.vocabulary.type = "word";
  data.vocabulary.unk = 3;
  for (const bool network : {true, false}) {
    EvaluatedModel model{"a", std::nullopt, {4, 12, 0}, 1};
    if (network) model.network = paper_network();
    const Json row = report_row(model, data, four_losses());
    CHECK(row["perplexity"].get<double>() == doctest::Approx(std::exp(3)));
    CHECK(row["unknown_targets"] == 1);
    CHECK(row["known_perplexity"].get<double>() == doctest::Approx(std::exp(2)));
    // sample variance (1 + 0 + 1) / 2, divided by 3
    CHECK(row["known_standard_error"].get<double>() == doctest::Approx(std::sqrt(1.0 / 3)));
    CHECK(row["known_word_perplexity"].get<double>() == doctest::Approx(std::exp(6.0 / 5)));
    CHECK(row["known_bits_per_byte"].get<double>() == doctest::Approx(0.125 / std::log(2)));
  }
  data.vocabulary.type = "char";  // an unknown character is not a word
  CHECK(report_row({"a", std::nullopt, {}, 1}, data, four_losses())["known_word_perplexity"]
            .is_null());
  data.vocabulary.unk.reset();
  const Json row = report_row({"a", std::nullopt, {}, 1}, data, four_losses());
  for (const char* key : {"unknown_targets", "known_perplexity", "known_standard_error",
                          "known_word_perplexity", "known_bits_per_byte"}) {
    CHECK(row[key].is_null());
  }
}

TEST_CASE("report_row: figures that are not known are null") {
  const Json row = report_row({"data/train", std::nullopt, {}, 100}, data_set(5), four_losses());
  CHECK(row["arch"] == "unigram");
  for (const char* key :
       {"segment", "memory", "compressed_memory", "clamp_len", "same_length", "context",
        "context_min", "context_max", "words", "bytes", "characters", "unknown", "unknown_rate",
        "word_perplexity", "byte_perplexity", "bits_per_byte", "bits_per_character"}) {
    CAPTURE(key);
    CHECK(row[key].is_null());
  }
}

TEST_CASE("report_row: a perplexity beyond every double is infinite, and null in JSON") {
  DataSet data = data_set(5);
  data.counts = shard::TextCounts{48, 40, 6, 2, 1};
  data.vocabulary.type = "word";
  data.vocabulary.unk = 3;
  Evaluation result = four_losses();
  result.nll = result.known.nll = 1e6;
  const Json row = report_row({"data/train", std::nullopt, {}, 100}, data, result);
  for (const char* key : {"perplexity", "word_perplexity", "byte_perplexity", "known_perplexity",
                          "known_word_perplexity"}) {
    CAPTURE(key);
    CHECK(TableText(key, false).lines(row) == std::string(key) + "\ninf\n");
    CHECK(json_line(row).find(fmt::format("\"{}\":null", key)) != std::string::npos);
  }
  CHECK(row["bits_per_byte"].get<double>() == doctest::Approx(1e6 / 48 / std::log(2)));
}

TEST_CASE("report_row: every row has the same keys, and a text without words no word perplexity") {
  DataSet data = data_set(5);
  data.counts = shard::TextCounts{5, 5, 0, 0, 0};
  const Json network = report_row({"a", paper_network(), {8, 24, 0}, 1}, data, four_losses());
  const Json unigram = report_row({"b", std::nullopt, {}, 1}, data_set(5), four_losses());
  const auto keys = [](const Json& row) {
    std::vector<std::string> names;
    for (const auto& item : row.items()) names.push_back(item.key());
    return names;
  };
  CHECK(keys(network) == keys(unigram));
  CHECK(network["word_perplexity"].is_null());
  CHECK(network["byte_perplexity"].is_number());
}

}  // namespace
}  // namespace ql::eval
