// Tests imported vocabularies, compared with the programs that made them.

#include <doctest/doctest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/sentencepiece.h"
#include "text/vocabulary_import.h"
#include "unit/shard_support.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;
using testing::decoded;

Vocabulary import_as(TokenType type, const std::string& content, VocabularyImport rules = {}) {
  rules.type = type;
  return import_vocabulary(content, rules, "file");
}

// Returns a model with the library's default rules: it normalizes, joins blanks and adds one in
// front.
std::string other_model(const std::unordered_map<std::string, std::string>& more) {
  std::vector<std::string> lines;
  testing::Random random(5);
  const std::vector<std::string> words = {
      "walking ", "talked ", "jumps ", "\u00C9t\u00E9 ", "a ", "caf\u00E9 ", "\uFF21\uFF22 ", "x"};
  for (int i = 0; i < 400; ++i) lines.push_back(testing::random_text(random, words, 9));
  std::unordered_map<std::string, std::string> settings = {
      {"vocab_size", "60"}, {"hard_vocab_limit", "false"}, {"minloglevel", "3"}};
  for (const auto& [key, value] : more) settings[key] = value;
  class Lines : public sentencepiece::SentenceIterator {
   public:
    explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
    bool done() const override { return next_ == lines_.size(); }
    void Next() override { ++next_; }
    const std::string& value() const override { return lines_[next_]; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    const std::vector<std::string>& lines_;
    std::size_t next_ = 0;
  } iterator(lines);
  std::string model;
  REQUIRE(sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model).ok());
  return model;
}

TEST_CASE("import_vocabulary: a list of words is split where its program ended words") {
  const std::vector<std::pair<std::string, Blanks>> cases = {
      {"<eos>\n<unk>\nthe\n", Blanks::kUnicode},
      {"<unk>\ncaf\u00E9 7\n", Blanks::kUnicode},
      {"\u2019s\n\u3042\n\u200B\n",
       Blanks::kUnicode},  // not blanks, though the last one is invisible
      {"<unk>\n10\u00A0km 2\nkm\n", Blanks::kAscii},
      {"<unk>\n\u3000\n", Blanks::kAscii},
      {"<unk>\na\x1F\n", Blanks::kAscii},
      {"<unk>\nx\u2028y\n", Blanks::kAscii},
  };
  for (const auto& [list, blanks] : cases) {
    CAPTURE(list);
    CHECK(import_as(TokenType::kWord, list).blanks() == blanks);
    VocabularyImport rules;
    rules.blanks = Blanks::kAscii;
    CHECK(import_as(TokenType::kWord, list, rules).blanks() == Blanks::kAscii);
    rules.blanks = Blanks::kUnicode;
    const auto import = [&, each = list] { import_as(TokenType::kWord, each, rules); };
    CHECK(contains(complaint(import), "--blanks ascii") == (blanks == Blanks::kAscii));
    CHECK(contains(complaint([&, each = list] { import_as(TokenType::kPiece, each, rules); }),
                   "--blanks: goes with words only, but a list with --type piece has pieces"));
  }
}

TEST_CASE(
    "import_vocabulary: a SentencePiece model of another program encodes and decodes as the "
    "library does") {
  testing::Random random(6);
  const std::vector<std::string> parts = {"walking", " ",      "  ", "jumps", "\u00C9", "caf\u00E9",
                                          "\uFF21",  "\u2581", "\t", "x",     "\u65E5", "talked "};
  using Settings = std::unordered_map<std::string, std::string>;
  for (const Settings& settings :
       {Settings{}, Settings{{"normalization_rule_name", "nfkc_cf"}},
        Settings{{"byte_fallback", "true"}, {"vocab_size", "330"}}, Settings{{"model_type", "bpe"}},
        Settings{{"remove_extra_whitespaces", "false"}},
        Settings{
            {"add_dummy_prefix", "false"}, {"bos_id", "-1"}, {"eos_id", "1"}, {"unk_id", "0"}}}) {
    const std::string model = other_model(settings);
    sentencepiece::SentencePieceProcessor library;
    REQUIRE(library.LoadFromSerializedProto(model).ok());
    const Vocabulary vocabulary = import_vocabulary(model, {}, "m.model");
    CHECK(vocabulary.type() == TokenType::kSentencePiece);
    CHECK(vocabulary.eos() == static_cast<TokenId>(library.eos_id()));
    CHECK_FALSE(vocabulary.model().keeps_text());
    const auto encoder = make_line_encoder(vocabulary);
    for (int round = 0; round < 200; ++round) {
      const std::string line = testing::random_text(random, parts, testing::below(random, 20));
      Unknowns unknowns(vocabulary, UnknownRule::kUnk);
      std::vector<TokenId> ids;
      encoder->encode(line, ids, unknowns);
      std::vector<int> expected;
      REQUIRE(library.Encode(line, &expected).ok());
      REQUIRE(ids == std::vector<TokenId>(expected.begin(), expected.end()));
      // The library writes U+2047 with blanks around it for an unknown piece.
      if (unknowns.count() > 0) continue;
      // Ids of other programs have control pieces, too, at their beginning and end.
      for (int id = 0; id < library.GetPieceSize(); ++id) {
        if (!library.IsControl(id) || static_cast<TokenId>(id) == vocabulary.eos()) continue;
        const std::ptrdiff_t place =
            testing::below(random, 2) == 0 ? 0 : static_cast<std::ptrdiff_t>(ids.size());
        ids.insert(ids.begin() + place, static_cast<TokenId>(id));
        expected.insert(expected.begin() + place, id);
      }
      std::string text;
      REQUIRE(library.Decode(expected, &text).ok());
      REQUIRE(decoded(vocabulary, ids) == text);
    }
  }
}

// Encodes a text as a file whose line feeds are tokens.
std::vector<TokenId> encoded(const Vocabulary& vocabulary, const std::string& text,
                             std::size_t block_bytes) {
  const testing::TextFiles files({text});
  const Encoder encoder(vocabulary, {EosRule::kNone});
  shard::test::ListSink sink;
  encode_files(
      files.names(), encoder, 2, sink, [] {}, block_bytes);
  return sink.documents.empty() ? std::vector<TokenId>() : sink.documents.front();
}

TEST_CASE(
    "import_vocabulary: a model with a piece for the line feed encodes a text as the library "
    "does") {
  testing::Random random(8);
  const std::vector<std::string> parts = {"walking", " ",       "  ", "jumps",  "\u00C9", "\n",
                                          "\n",      "talked ", "x",  "\uFF21", "\n "};
  using Settings = std::unordered_map<std::string, std::string>;
  for (const Settings& settings :
       {Settings{}, Settings{{"model_type", "bpe"}},
        Settings{{"remove_extra_whitespaces", "false"}}, Settings{{"add_dummy_prefix", "false"}},
        Settings{{"normalization_rule_name", "nfkc_cf"}},
        Settings{{"byte_fallback", "true"}, {"vocab_size", "330"}},
        Settings{{"normalization_rule_name", "identity"},
                 {"add_dummy_prefix", "false"},
                 {"remove_extra_whitespaces", "false"}}}) {
    Settings more = settings;
    more["user_defined_symbols"] = "\n";
    const std::string model = other_model(more);
    sentencepiece::SentencePieceProcessor library;
    REQUIRE(library.LoadFromSerializedProto(model).ok());
    const Vocabulary vocabulary = import_vocabulary(model, {}, "m.model");
    for (int round = 0; round < 200; ++round) {
      const std::string text = testing::random_text(random, parts, testing::below(random, 20));
      std::vector<int> expected;
      REQUIRE(library.Encode(text, &expected).ok());
      const std::vector<TokenId> ids = encoded(vocabulary, text, 1 + testing::below(random, 40));
      INFO(text);
      REQUIRE(ids == std::vector<TokenId>(expected.begin(), expected.end()));
      if (std::count(ids.begin(), ids.end(), *vocabulary.unk()) > 0) continue;
      std::string back;
      REQUIRE(library.Decode(expected, &back).ok());
      REQUIRE(decoded(vocabulary, ids) == back);
    }
  }
}

TEST_CASE("import_vocabulary: a model with pieces of several line feeds is imported with a note") {
  std::vector<std::string> notes;
  const std::string model = other_model({{"user_defined_symbols", "\n,\n\n"}});
  const Vocabulary vocabulary = import_vocabulary(model, {}, "m.model", &notes);
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0],
                 "pieces of several characters with a line feed among them are never used"));
  const std::vector<TokenId> ids = encoded(vocabulary, "x\n\nx\n", 64);
  CHECK(std::count(ids.begin(), ids.end(), vocabulary.find("\n")) == 3);
  CHECK(decoded(vocabulary, ids) == "x\n\nx\n");
  std::string shown;
  PieceWriter writer(vocabulary, EosRule::kNone,
                     [&shown](std::string_view part) { shown += part; });
  writer.write(ids.data(), ids.size());
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 3);
  CHECK(contains(shown, "x \\n\n\\n\n"));
  notes.clear();
  import_vocabulary(other_model({{"user_defined_symbols", "\n"}}), {}, "m.model", &notes);
  CHECK(notes.empty());
}

TEST_CASE("import_vocabulary: rules that point outside of their model are found") {
  const std::string model = other_model({});
  CHECK(sentencepiece_rules(model).problem.empty());
  CHECK(sentencepiece_rules(model).adds_prefix);
  CHECK(sentencepiece_rules(model).removes_blanks);
  // The rules are at the end of the model, after the pieces and the settings.
  const std::size_t begin = model.find("nmt_nfkc\x12");
  REQUIRE(begin != std::string::npos);
  int refused = 0;
  testing::Random random(7);
  const sentencepiece::SentencePieceProcessor library;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = model;
    for (int i = 0; i < 3; ++i) {
      damaged[begin + 16 + testing::below(random, model.size() - begin - 16)] ^=
          static_cast<char>(1 << testing::below(random, 8));
    }
    try {
      // An accepted damaged model must not make the library read outside its memory. The sanitizers
      // would report that.
      const Vocabulary vocabulary = import_vocabulary(damaged, {}, "m.model");
      Unknowns unknowns(vocabulary, UnknownRule::kUnk);
      std::vector<TokenId> ids;
      for (int line = 0; line < 20; ++line) {
        std::string text;
        for (int i = 0; i < 20; ++i) {
          text += testing::random_text(random, testing::tricky_parts(), 1);
        }
        make_line_encoder(vocabulary)->encode(text, ids, unknowns);
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
}

// Returns a model with one more normalizer_spec, whose charsmap has these units and texts.
std::string with_charsmap(const std::string& model, const std::vector<std::uint32_t>& units,
                          const std::string& texts) {
  std::string charsmap;
  append_little_endian(charsmap, static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t)));
  for (const std::uint32_t unit : units) append_little_endian(charsmap, unit);
  charsmap += texts;
  const auto field = [](char number, const std::string& content) {
    std::string bytes(1, static_cast<char>(number << 3 | 2));
    std::size_t size = content.size();
    for (; size >= 0x80; size >>= 7) bytes += static_cast<char>(0x80 | (size & 0x7F));
    return bytes + static_cast<char>(size) + content;
  };
  return model + field(3, field(2, charsmap));
}

TEST_CASE("sentencepiece_rules: rules that would lead the library outside its memory are refused") {
  const std::string model = other_model({});
  const auto problem = [&](const std::vector<std::uint32_t>& units, const std::string& texts) {
    return complaint([&] { import_vocabulary(with_charsmap(model, units, texts), {}, "m"); });
  };
  constexpr std::uint32_t kValue = 0x80000000U;
  constexpr std::uint32_t kHasValue = 0x100U;
  const std::string texts("zz\0", 3);
  // The root leads to units 256 to 511. The unit for 'a' there leads on to units 512 to 767, the
  // first of which is its value, an offset in the texts.
  std::vector<std::uint32_t> good(768, kValue);
  good[0] = 256U << 10;
  good[256 ^ 'a'] = (256U ^ 'a' ^ 512U) << 10 | kHasValue | 'a';
  std::vector<std::uint32_t> units = good;
  CHECK(problem(units, texts).empty());
  CHECK(contains(problem(units, "zz"), "its normalization rules are damaged"));
  CHECK(contains(problem(units, std::string(300, 'z') + std::string(1, '\0')), "damaged"));
  // The root leads outside, although its highest bit is set.
  units = std::vector<std::uint32_t>(256, kValue);
  units[0] = 0xFFFFFE00U;
  CHECK(contains(problem(units, texts), "damaged"));
  // A node leads to itself: a replacement for a, aa, aaa, and so on without end.
  units = good;
  units[256 ^ 'a'] = static_cast<std::uint32_t>('a') << 10 | kHasValue | 'a';
  CHECK(contains(problem(units, texts), "damaged"));
  // A value points to a place after the texts.
  units = good;
  units[512] = kValue | 3U;
  CHECK(contains(problem(units, texts), "damaged"));
}

TEST_CASE("import_vocabulary: a list of words is that of the public Transformer-XL") {
  const Vocabulary vocabulary = import_as(TokenType::kWord, "<S> 0\r\nthe 17\n<UNK>\ncat x\n");
  CHECK(vocabulary.type() == TokenType::kWord);
  CHECK(vocabulary.size() == 4);
  CHECK(vocabulary.token(3) == "cat");
  CHECK(vocabulary.counts() == std::vector<std::int64_t>{0, 17, 0, 0});
  CHECK(vocabulary.eos() == TokenId{0});
  CHECK(vocabulary.unk() == TokenId{2});
  std::vector<TokenId> ids;
  Unknowns unknowns(vocabulary, UnknownRule::kUnk);
  make_line_encoder(vocabulary)->encode("the cat sat", ids, unknowns);
  CHECK(ids == std::vector<TokenId>{1, 3, 2});

  CHECK(contains(complaint([] { import_as(TokenType::kWord, "a\n\nb\n"); }),
                 "file: line 2: the line has no word"));
  CHECK(contains(complaint([] { import_as(TokenType::kWord, "a\nb\na\n"); }),
                 "file: line 3: 'a' is the word of line 1, too; import with --type piece"));
  CHECK(contains(complaint([] { import_as(TokenType::kWord, "a\n<S>\n</S>\n"); }),
                 "both <S> and </S> may be the <eos>; choose one with --eos-token"));
  VocabularyImport rules;
  rules.eos_token = "</S>";
  CHECK(import_as(TokenType::kWord, "a\n<S>\n</S>\n", rules).eos() == TokenId{2});
  rules.eos_token = "b";
  CHECK(contains(complaint([&] { import_as(TokenType::kWord, "a\n", rules); }),
                 "'b' is not a token of file (number of tokens: 1)"));
  rules = {};
  rules.unk = Presence::kAlways;
  CHECK(contains(complaint([&] { import_as(TokenType::kWord, "a\n", rules); }), "--unk-token"));
}

TEST_CASE("import_vocabulary: a list of pieces holds any bytes and decodes") {
  const Vocabulary vocabulary =
      import_as(TokenType::kPiece, " the\n\\n\n\\xC3\n\\xA9\n\\\\n\n\\x41\nA\n<|endoftext|>\n");
  CHECK(vocabulary.size() == 8);
  CHECK(vocabulary.eos() == TokenId{7});
  CHECK(decoded(vocabulary, {0, 2, 3, 1, 4, 5, 6, 7}) == " the\u00E9\n\\nAA\n");
  const std::string text = vocabulary.to_text(Json::object());
  CHECK(parse_vocabulary(text, "v.json").hash() == vocabulary.hash());
  CHECK(contains(complaint([&] { make_line_encoder(vocabulary); }), "qlbin import"));
  CHECK(contains(complaint([] { import_as(TokenType::kPiece, "a\n\\q\n"); }), "tokens[1]"));
  CHECK(contains(complaint([] { import_as(TokenType::kPiece, "a\n\nb\n"); }), "file: line 2"));
}

Json tokenizer(const std::string& decoder) {
  Json json = parse_json(R"({"added_tokens": [{"id": 3, "content": "<|end of text|>"}],
    "model": {"type": "BPE", "continuing_subword_prefix": "",
              "vocab": {"a": 0, "\u0120the": 1, "\u00C3": 2}}})",
                         "t");
  json["decoder"] = parse_json(decoder, "d");
  return json;
}

std::string import_error(const Json& json) {
  return complaint([&] { import_vocabulary(json.dump(), {}, "tokenizer.json"); });
}

TEST_CASE("import_vocabulary: the vocabulary of a tokenizer.json holds the bytes of its tokens") {
  VocabularyImport rules;
  rules.eos_token = "<|end of text|>";
  Json json = tokenizer(R"({"type": "ByteLevel"})");
  const Vocabulary bytes = import_vocabulary("\xEF\xBB\xBF" + json.dump(), rules, "t");
  CHECK(bytes.type() == TokenType::kPiece);
  CHECK(bytes.eos() == TokenId{3});
  CHECK_FALSE(bytes.unk());
  CHECK(decoded(bytes, {0, 1, 2}) == "a the\xC3");
  // The added token stands for the same bytes as one of the vocabulary.
  json["added_tokens"].push_back({{"id", 4}, {"content", " the"}});
  const Vocabulary twice = import_vocabulary(json.dump(), {}, "t");
  CHECK(twice.token(1) == " the");
  CHECK(twice.token(4) == "\\x20the");
  CHECK(decoded(twice, {1, 4}) == " the the");

  json = tokenizer(R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]})");
  json["added_tokens"][0]["id"] = 4;
  json["model"] = parse_json(R"({"type": "Unigram", "unk_id": 0,
    "vocab": [["<unk>", 0], ["\u2581the", -1.5], ["A", 0], ["<0x41>", 0]]})",
                             "m");
  const Vocabulary pieces = import_vocabulary(json.dump(), {}, "t");
  CHECK(pieces.unk() == TokenId{0});
  CHECK(decoded(pieces, {1, 2, 3, 4}) == " theAA<|end of text|>");
  CHECK(pieces.token(3) == "\\x41");
  rules.type = TokenType::kWord;
  CHECK(contains(complaint([&] { import_vocabulary(json.dump(), rules, "t"); }),
                 "is a tokenizer.json, of type piece"));
}

TEST_CASE("import_vocabulary: an unsupported tokenizer.json is refused") {
  CHECK(contains(import_error(tokenizer("null")), "decoder: expected ByteLevel, Metaspace, "));
  CHECK(contains(import_error(tokenizer(R"({"type": "WordPiece"})")), "found WordPiece; write"));
  const Json good = tokenizer(R"({"type": "ByteLevel"})");
  CHECK(import_error(good).empty());
  const auto with = [&](const std::string& token, const Json& id) {
    Json json = good;
    json["model"]["vocab"][token] = id;
    return import_error(json);
  };
  CHECK(contains(with("far", 1 << 17), "the id of 'far' is 131072, expected less than 65,546"));
  CHECK(contains(with("far", 2), "the id 2 belongs to two tokens"));
  CHECK(contains(with("far", -1), "the id of 'far' is -1"));
  CHECK(contains(with("far", UINT64_MAX), "is 18446744073709551615, expected less than"));
  CHECK(contains(with("far", "x"), "is \"x\", expected a whole number"));
  CHECK(contains(with("", 4), "the token with the id 4 has no text"));
  Json json = good;
  json["added_tokens"] =
      parse_json(R"([{"id": 4, "content": "x"}, {"id": 4, "content": "x"}])", "a");
  CHECK(import_error(json).empty());  // id 3 is a gap
  json["added_tokens"] = 7;
  CHECK(contains(import_error(json), "added_tokens: expected an array"));
  json = good;
  json["model"]["continuing_subword_prefix"] = "##";
  CHECK(contains(import_error(json), "continuing_subword_prefix is \"##\", expected none"));
  json["model"]["vocab"] = 3;
  json["model"].erase("continuing_subword_prefix");
  CHECK(contains(import_error(json), "vocab: expected an object or an array"));
  CHECK(contains(import_error({{"model", "GPT-2"}}), "it has no object 'model'"));
}

TEST_CASE("import_vocabulary: only possible tokens become <eos> and <unk>") {
  // One token cannot be both, and GPT-2's unk_token is its <|endoftext|>.
  Json json = tokenizer(R"({"type": "ByteLevel"})");
  json["added_tokens"][0]["content"] = "<|endoftext|>";
  json["model"]["unk_token"] = "<|endoftext|>";
  const Vocabulary gpt = import_vocabulary(json.dump(), {}, "t");
  CHECK(gpt.eos() == TokenId{3});
  CHECK_FALSE(gpt.unk());

  // A piece of ordinary text cannot be <eos>, and <unk> is the model's unknown piece.
  const std::string model =
      other_model({{"eos_id", "-1"}, {"bos_id", "-1"}, {"user_defined_symbols", "<|endoftext|>"}});
  CHECK_FALSE(import_vocabulary(model, {}, "m").eos());
  VocabularyImport rules;
  rules.eos_token = "<|endoftext|>";
  CHECK(contains(complaint([&] { import_vocabulary(model, rules, "m"); }), "not a control piece"));
  rules = {};
  rules.unk_token = "x";
  CHECK(contains(complaint([&] { import_vocabulary(model, rules, "m"); }), "--unk-token"));
  rules = {};
  rules.unk = Presence::kNever;
  CHECK(contains(complaint([&] { import_vocabulary(model, rules, "m"); }), "--unk never"));
}

TEST_CASE("import_vocabulary: a list is UTF-8 with line ends of any system") {
  CHECK(contains(complaint([] { import_as(TokenType::kWord, "a\n\xFF\n"); }),
                 "file: line 2: invalid UTF-8"));
  CHECK(contains(complaint([] { import_as(TokenType::kPiece, "a\n\xFF\n"); }), "line 2"));
  const Vocabulary vocabulary =
      import_as(TokenType::kPiece, "\xEF\xBB\xBFthe\r\n<|endoftext|>\r\na\\r\r\n");
  CHECK(vocabulary.token(0) == "the");
  CHECK(vocabulary.eos() == TokenId{1});
  CHECK(decoded(vocabulary, {2}) == "a\r");
  CHECK(contains(complaint([] { import_as(TokenType::kPiece, "a\n\r\nb"); }),
                 "write <missing:1> in it"));
  CHECK(import_as(TokenType::kPiece, "a\r\n\r\n").size() == 1);
  // It looks like a model only at its beginning.
  CHECK(contains(complaint([] { import_as(TokenType::kWord, "\nX\nb\n"); }),
                 "line 1: the line has no word"));
}

TEST_CASE(
    "byte_level_bytes: each of the 256 bytes has a code point of its own in GPT-2's alphabet") {
  // The alphabet by its definition: visible bytes are themselves, the others count from U+0100 on.
  std::string vocabulary;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    std::string letter;
    const int code = visible ? byte : next++;
    if (code < 0x80) {
      letter = static_cast<char>(code);
    } else {
      letter = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
    vocabulary += (byte == 0 ? "" : ",") + Json(letter).dump() + ":" + std::to_string(byte);
  }
  const Vocabulary made = import_vocabulary(
      R"({"decoder": {"type": "ByteLevel"}, "model": {"vocab": {)" + vocabulary + "}}}", {}, "t");
  std::string all;
  std::vector<TokenId> ids;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
    ids.push_back(static_cast<TokenId>(byte));
  }
  CHECK(decoded(made, ids) == all);
}

}  // namespace
}  // namespace ql::text
