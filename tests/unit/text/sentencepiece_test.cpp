// Tests SentencePiece models: training, encoding and damage.

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/strings.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/sentencepiece_training.h"
#include "text/vocabulary_builder.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;
using testing::TextFiles;

// The words have common stems and endings, from which the library learns pieces.
std::string training_text() {
  testing::Random random(9);
  const std::vector<std::string> stems = {"walk", "talk", "play", "jump", "look", "öffn", "call"};
  const std::vector<std::string> endings = {"", "s", "ed", "ing", "er", "ers", "er's"};
  std::string text;
  for (int line = 0; line < 300; ++line) {
    for (int word = 0; word < 8; ++word) {
      text += testing::random_text(random, stems, 1) + testing::random_text(random, endings, 1);
      text += testing::below(random, 20) == 0 ? "\t" : " ";
    }
    text += "\n";
  }
  return text;
}

VocabularyRules rules_with(std::int64_t size, Presence unk = Presence::kAuto) {
  VocabularyRules rules;
  rules.type = TokenType::kSentencePiece;
  rules.max_size = size;
  rules.unk = unk;
  return rules;
}

BuiltVocabulary train(const std::string& text, const VocabularyRules& rules) {
  const TextFiles files({text});
  return build_vocabulary(files.names(), rules);
}

struct Result {
  std::vector<TokenId> ids;
  std::string decoded;
  EncodeTotals totals;
};

class Recorder : public shard::TokenSink {
 public:
  Recorder(Decoder& decoder, Result& result) : decoder_(decoder), result_(result) {}
  void begin_document() override { decoder_.begin_document(); }
  void write(const TokenId* ids, std::size_t count) override {
    decoder_.write(ids, count);
    result_.ids.insert(result_.ids.end(), ids, ids + count);
  }
  void finish(const std::optional<shard::TextCounts>&) override { decoder_.finish(std::nullopt); }

 private:
  Decoder& decoder_;
  Result& result_;
};

Result encode(const std::string& text, const Vocabulary& vocabulary, EosRule eos,
              std::size_t block_bytes = 64, int threads = 1) {
  const TextFiles files({text});
  const Encoder encoder(vocabulary, {eos});
  Result result;
  Decoder decoder(vocabulary, {eos}, [&result](std::string_view s) { result.decoded += s; });
  Recorder recorder(decoder, result);
  result.totals = encode_files(
      files.names(), encoder, threads, recorder, [] {}, block_bytes);
  recorder.finish(std::nullopt);
  return result;
}

// "walking talkers" and <eos> have 16 characters and must become fewer ids than this. The pieces
// themselves depend on the processor's rounding.
constexpr std::size_t kFewPieces = 10;

TEST_CASE("train_sentencepiece: pieces learn words and can encode every text") {
  const BuiltVocabulary built = train(training_text(), rules_with(320));
  const Vocabulary& vocabulary = built.vocabulary;
  CHECK(vocabulary.size() <= 320);
  CHECK(vocabulary.token(0) == "<eos>");
  CHECK(vocabulary.token(1) == "<unk>");
  CHECK(vocabulary.eos() == TokenId{0});
  CHECK(vocabulary.unk() == TokenId{1});
  CHECK(built.unknown == 0);
  CHECK(built.lines == 300);
  CHECK(vocabulary.counts()[0] == 300);
  CHECK(encode("walking talkers", vocabulary, EosRule::kLine).ids.size() <= kFewPieces);

  testing::Random random(10);
  for (int round = 0; round < 100; ++round) {
    const std::string text = testing::random_lines(random) + training_text().substr(0, 200);
    for (const EosRule eos : {EosRule::kNone, EosRule::kLine, EosRule::kDouble}) {
      const Result result = encode(text, vocabulary, eos);
      REQUIRE(result.decoded == text);
      CHECK(result.totals.counts.unknown == 0);
      CHECK(encode(text, vocabulary, eos, 100000, 3).ids == result.ids);
    }
  }
}

TEST_CASE("SentencePieceModel: long lines are cut the same way at every place") {
  const Vocabulary vocabulary = train(training_text(), rules_with(320)).vocabulary;
  std::string line;
  while (line.size() < 200000) line += "walking talkers öffned ";
  const std::string solid(150000, 'x');
  const Result alone = encode(line + "\n" + solid, vocabulary, EosRule::kLine);
  CHECK(alone.decoded == line + "\n" + solid);
  const Result after = encode("a\n" + line + "\n" + solid, vocabulary, EosRule::kLine, 5000, 2);
  const std::size_t more = after.ids.size() - alone.ids.size();
  CHECK(std::vector<TokenId>(after.ids.begin() + static_cast<std::ptrdiff_t>(more),
                             after.ids.end()) == alone.ids);
}

TEST_CASE("train_sentencepiece: with <unk> there are no byte pieces") {
  const Vocabulary vocabulary =
      train(training_text(), rules_with(40, Presence::kAlways)).vocabulary;
  CHECK(vocabulary.size() <= 40);
  CHECK(encode("walk", vocabulary, EosRule::kLine).totals.counts.unknown == 0);
  const Result result = encode("walk \u65E5 \xE2\x96\x81\n", vocabulary, EosRule::kLine);
  CHECK(result.totals.counts.unknown == 2);
  CHECK(result.decoded == "walk \uFFFD \uFFFD\n");
  CHECK(encode("a\n", vocabulary, EosRule::kNone).totals.counts.unknown == 1);
}

TEST_CASE("train_sentencepiece: the same text gives the same model, which the file keeps") {
  const Vocabulary made = train(training_text(), rules_with(320)).vocabulary;
  CHECK(train(training_text(), rules_with(320)).vocabulary.hash() == made.hash());
  CHECK(train(training_text(), rules_with(290)).vocabulary.hash() != made.hash());
  const std::string text = made.to_text(Json::object());
  const Vocabulary read = parse_vocabulary(text, "v.json");
  CHECK(read.hash() == made.hash());
  CHECK(encode("jumped", read, EosRule::kLine).ids == encode("jumped", made, EosRule::kLine).ids);

  Json json = parse_json(text, "v.json");
  json["tokens"][280] = "something else";
  CHECK(contains(complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }),
                 "as in the SentencePiece model, found 'something else'"));
  json = parse_json(text, "v.json");
  json["specials"]["eos"] = 300;
  CHECK(contains(complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }), "control piece"));
  json = parse_json(text, "v.json");
  json["model"] = "AAAA";
  CHECK(contains(complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }), "v.json: model"));
  json["model"] = "?";
  CHECK(contains(complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }), "not base64"));
}

TEST_CASE("SentencePieceModel: models with damaged rules, and other bytes, are refused") {
  const Vocabulary made = train(training_text(), rules_with(320)).vocabulary;
  const Json json = parse_json(made.to_text(Json::object()), "v.json");
  const std::string model = base64_decode(json["model"].get<std::string>()).value();
  // In protobuf's wire format, later fields are added to the earlier ones.
  const auto with = [&](const std::string& fields) {
    Json changed = json;
    changed["model"] = base64_encode(model + fields);
    return complaint([&] { parse_vocabulary(dump_json(changed), "v.json"); });
  };
  CHECK(with("").empty());
  // These fields set precompiled_charsmap in normalizer_spec and denormalizer_spec; the rules may
  // lead anywhere.
  const std::string rules = "\x0C\x12\x0A" + std::string("\4\0\0\0", 4) + "\xFF\xFF\xFF\x7Fzz";
  CHECK(
      contains(with("\x1A" + rules),
               "v.json: model: this SentencePiece model cannot be used: its normalization rules"));
  CHECK(contains(with("\x2A" + rules), "it has rules for decoded text"));
  for (const std::string broken :
       {"\x1A\x7F", "\x1A", "\x0B", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"})
    CHECK(contains(with(broken), "damaged"));
  // This adds an empty piece.
  CHECK(contains(with(std::string("\x0A\x00", 2)), "the SentencePiece library refuses this model"));
}

TEST_CASE(
    "train_sentencepiece: a character that the library reserves affects only its neighbourhood") {
  std::string text = training_text() + training_text();
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (text.size() < 70000) text += text;  // more than one part
  text += "\u2585";                          // U+2585 stands for unknown text inside the library
  const Vocabulary vocabulary = train(text, rules_with(320)).vocabulary;
  CHECK(encode("walking talkers", vocabulary, EosRule::kLine).ids.size() <= kFewPieces);
  CHECK(encode("a \u2585 b", vocabulary, EosRule::kLine).decoded == "a \u2585 b");
}

// Returns 60 rare characters, each once, among many words of 12 letters and the blank.
std::string text_with_rare_characters() {
  std::string text = training_text();
  for (char32_t c = 0x4E00; c < 0x4E00 + 60; ++c) append_utf8(text, c);
  return text;
}

bool has_piece(const Vocabulary& vocabulary, const std::string& piece) {
  return vocabulary.find(piece) != TokenTable::kNone;
}

TEST_CASE("train_sentencepiece: characters without room for a piece become bytes or <unk>") {
  const std::string text = text_with_rare_characters();
  std::set<std::string> distinct;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = code_point_at(text, i).length;
    if (const std::string c = text.substr(i, length); c != "\n" && c != "\t") distinct.insert(c);
    i += length;
  }
  const auto all = static_cast<std::int64_t>(distinct.size());
  struct Row {
    Presence unk;
    std::int64_t size;
    std::optional<double> coverage;
    std::int64_t covered;
    bool lowered;
  };
  const std::vector<Row> rows = {
      {Presence::kAuto, 258 + all + 50, 1.0, all, false},
      {Presence::kAuto, 258 + all, 1.0, all, false},
      {Presence::kAuto, 259, std::nullopt, 1, true},
      {Presence::kAuto, 265, std::nullopt, 7, true},
      {Presence::kAuto, 320, 1e-6, 1, false},
      {Presence::kAlways, 3, std::nullopt, 1, true},
      {Presence::kAlways, 9, std::nullopt, 7, true},
      {Presence::kAlways, 2 + all, 1.0, all, false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.size);
    VocabularyRules rules = rules_with(row.size, row.unk);
    rules.coverage = row.coverage;
    const BuiltVocabulary built = train(text, rules);
    CHECK(built.characters == all);
    CHECK(built.covered == row.covered);
    CHECK(built.coverage_lowered == row.lowered);
    CHECK(built.vocabulary.size() <= row.size);
    std::int64_t pieces = 0;
    for (const std::string& c : distinct) {
      pieces += has_piece(built.vocabulary, c == " " ? std::string(kPieceBlank) : c) ? 1 : 0;
    }
    CHECK(pieces == row.covered);
    const Result result = encode(text, built.vocabulary, EosRule::kLine);
    if (row.unk == Presence::kAuto) {
      CHECK(result.decoded == text);
      CHECK(result.totals.counts.unknown == 0);
    } else {
      CHECK((result.totals.counts.unknown > 0) == (row.covered < all || contains(text, "\t")));
    }
  }
}

// If a character is rare, the library must still recognize the names that contain it.
TEST_CASE("train_sentencepiece: rare characters do not change the names of pieces in a text") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "βα <unk> βα δεζ <0x41> <eos> γδ\n";
  for (const Presence unk : {Presence::kAuto, Presence::kAlways}) {
    VocabularyRules rules = rules_with(unk == Presence::kAuto ? 270 : 20, unk);
    rules.coverage = 0.998;
    const bool bytes = unk == Presence::kAuto;
    const BuiltVocabulary built = train(text + "kxuns\n", rules);
    for (const std::string piece : {"<", ">", "u", "n", "k", "s", "x"}) {
      CAPTURE(piece);
      // Without pieces for bytes, <0x41> is a word like any other.
      const bool of_a_word = !bytes && std::string("<x>").find(piece) != std::string::npos;
      CHECK(has_piece(built.vocabulary, piece) == of_a_word);
    }
  }
  for (std::int64_t size = 259; size < 264; ++size) {
    CAPTURE(size);
    CHECK(train("the cat sat on the mat\nthe <unk> ran\n", rules_with(size)).vocabulary.size() <=
          size);
  }
}

TEST_CASE("train_sentencepiece: the default coverage is the library's") {
  VocabularyRules rules = rules_with(500);
  const BuiltVocabulary usual = train(text_with_rare_characters(), rules);
  CHECK_FALSE(usual.coverage_lowered);
  CHECK(usual.covered < usual.characters);
  rules.coverage = kUsualCoverage;
  const BuiltVocabulary said = train(text_with_rare_characters(), rules);
  CHECK(said.covered == usual.covered);
  REQUIRE(said.vocabulary.size() == usual.vocabulary.size());
  for (TokenId id = 0; id < said.vocabulary.size(); ++id) {
    CHECK(said.vocabulary.token(id) == usual.vocabulary.token(id));
  }
}

TEST_CASE("train_sentencepiece: messages about the size are our own") {
  const std::string text = text_with_rare_characters();
  const auto with = [&](std::int64_t size, Presence unk, std::optional<double> coverage) {
    VocabularyRules rules = rules_with(size, unk);
    rules.coverage = coverage;
    return complaint([&] { train(text, rules); });
  };
  CHECK(contains(with(258, Presence::kAuto, std::nullopt), "at least 259"));
  CHECK(contains(with(300, Presence::kAuto, 1.0),
                 "--character-coverage: 300 pieces leave room for 42"));
  CHECK(contains(with(30, Presence::kAlways, 1.0), "30 pieces leave room for 28"));
  const auto reserved = [](const std::string& only) {
    return complaint([&] { train(only, rules_with(300)); });
  };
  for (const char* only : {"\u2585\n", "\t\n", "", "\n\n"}) {
    CHECK(contains(reserved(only), "no text to make a vocabulary from"));
  }
  for (const std::string& message : {with(100, Presence::kAuto, std::nullopt),
                                     with(300, Presence::kAuto, 1.0), reserved("\u2585")}) {
    CHECK_FALSE(contains(message, ".cc"));
    CHECK_FALSE(contains(message, "character_coverage"));
  }
}

TEST_CASE("train_sentencepiece: a long line counts as lines of 1 KiB that are cut at blanks") {
  // Longer sentences take the library many times as long: tests/bench/text_tools measures it.
  constexpr std::size_t kSentence = 1024;
  std::string line;
  const std::string text = training_text();
  while (line.size() < 100000) line += text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::string cut;
  for (std::string_view rest = line; !rest.empty();) {
    const std::size_t size = sentencepiece_part(rest, kSentence);
    CHECK(size <= kSentence);
    cut += std::string(rest.substr(0, size)) + '\n';
    rest.remove_prefix(size);
  }
  const Vocabulary vocabulary = train(line, rules_with(320)).vocabulary;
  CHECK(vocabulary.hash() == train(cut, rules_with(320)).vocabulary.hash());
  CHECK(encode("walking talkers", vocabulary, EosRule::kLine).ids.size() <= kFewPieces);
}

TEST_CASE("train_sentencepiece: a size that does not fit is explained") {
  CHECK(contains(complaint([] { train(training_text(), rules_with(100)); }), "100 pieces"));
  CHECK(contains(complaint([] { train("\n\n", rules_with(300)); }), "no text"));
}

}  // namespace
}  // namespace ql::text
