// Compares the encoder with a naive one that sees complete texts.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "base/strings.h"
#include "text/encoder.h"
#include "text/vocabulary_builder.h"
#include "text/words.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;
using testing::TextFiles;

// Holds the calls of a sink, or those that the oracle expects.
struct Encoded {
  std::vector<TokenId> ids;
  std::vector<std::size_t> documents;
  shard::TextCounts counts;
};

class RecordingSink : public shard::TokenSink {
 public:
  void begin_document() override { encoded.documents.push_back(encoded.ids.size()); }
  void write(const TokenId* ids, std::size_t count) override {
    encoded.ids.insert(encoded.ids.end(), ids, ids + count);
  }
  Encoded encoded;
};

Encoded encode(const std::vector<std::string>& files, const Vocabulary& vocabulary,
               const EncodeOptions& options, int threads, std::size_t block_bytes) {
  const Encoder encoder(vocabulary, options);
  RecordingSink sink;
  const EncodeTotals totals = encode_files(
      files, encoder, threads, sink, [] {}, block_bytes);
  CHECK(totals.tokens == static_cast<std::int64_t>(sink.encoded.ids.size()));
  CHECK(totals.documents == static_cast<std::int64_t>(sink.encoded.documents.size()));
  sink.encoded.counts = totals.counts;
  return sink.encoded;
}

std::vector<std::string> naive_words(const std::string& text, const Vocabulary& vocabulary) {
  return testing::naive_words(text, vocabulary.blanks());
}

struct Line {
  std::string text;
  bool fed = false;  // the line ends with a line feed
};

std::vector<Line> naive_lines(const std::string& text) {
  std::vector<Line> lines;
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      lines.push_back({line, true});
      line.clear();
    } else {
      line += c;
    }
  }
  if (!line.empty()) lines.push_back({line, false});
  return lines;
}

// Is an oracle for one of the four types of vocabulary, with its own copy of every rule.
class Oracle {
 public:
  Oracle(const Vocabulary& vocabulary, EosRule eos, std::string documents)
      : vocabulary_(vocabulary), eos_(eos), documents_(std::move(documents)) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      if (id != vocabulary.eos()) id_of_[std::string(vocabulary.token(id))] = id;
    }
  }

  Encoded encode(const std::vector<std::string>& texts) {
    for (const std::string& raw : texts) {
      const bool bytes = vocabulary_.type() == TokenType::kByte;
      std::string text = bytes ? raw : replace_invalid_utf8(raw);
      encoded_.counts.characters += count_code_points(text);
      const std::size_t mark = text.rfind("\uFEFF", 0) == 0 ? 3 : 0;
      if (vocabulary_.type() == TokenType::kWord) text.erase(0, mark);
      auto originals = naive_lines(text);
      const auto lines = naive_lines(vocabulary_.lowercase() ? lowercase(text) : text);
      REQUIRE(originals.size() == lines.size());
      encoded_.counts.bytes += static_cast<std::int64_t>(raw.size());
      encoded_.counts.words +=
          static_cast<std::int64_t>(naive_words(raw.substr(mark), vocabulary_).size());
      encoded_.counts.lines += static_cast<std::int64_t>(lines.size());
      if (mark > 0 && vocabulary_.type() != TokenType::kWord) originals[0].text.erase(0, mark);
      if (documents_ == "file") pending_ = true;
      for (std::size_t i = 0; i < lines.size(); ++i) add_line(originals[i].text, lines[i]);
    }
    return encoded_;
  }

 private:
  void add_line(const std::string& original, const Line& line) {
    const bool blank = testing::naive_blank_head(original, kLineHead, vocabulary_.blanks());
    if (documents_ == "line") pending_ = true;
    if (documents_ == "blank" && !blank && text_seen_ && last_blank_) pending_ = true;
    if (documents_ == "x" && original.size() <= kLineHead && contains(original, "x") &&
        text_seen_) {
      pending_ = true;
    }
    text_seen_ = text_seen_ || !blank;
    last_blank_ = blank;
    const bool words = vocabulary_.type() == TokenType::kWord;
    if (eos_ == EosRule::kDouble) add(*vocabulary_.eos());
    if (words) {
      for (const std::string& word : naive_words(line.text, vocabulary_)) add_token(word);
    } else {
      add_letters(line.text);
    }
    if (eos_ != EosRule::kNone && (line.fed || words)) add(*vocabulary_.eos());
    if (eos_ == EosRule::kNone && line.fed && !words) add_letters("\n");
  }

  void add_letters(const std::string& text) {
    for (std::size_t i = 0; i < text.size();) {
      if (vocabulary_.type() == TokenType::kByte) {
        add_token(byte_token(static_cast<unsigned char>(text[i++])));
        continue;
      }
      std::size_t size = 1;
      while (i + size < text.size() && (text[i + size] & 0xC0) == 0x80) ++size;
      add_token(text.substr(i, size));
      i += size;
    }
  }

  void add_token(const std::string& token) {
    const auto found = id_of_.find(token);
    if (found == id_of_.end()) ++encoded_.counts.unknown;
    add(found == id_of_.end() ? *vocabulary_.unk() : found->second);
  }

  void add(TokenId id) {
    if (pending_) encoded_.documents.push_back(encoded_.ids.size());
    pending_ = false;
    encoded_.ids.push_back(id);
  }

  const Vocabulary& vocabulary_;
  EosRule eos_;
  std::string documents_;
  std::map<std::string, TokenId> id_of_;
  Encoded encoded_;
  bool pending_ = true, text_seen_ = false, last_blank_ = false;
};

void check_equal(const Encoded& got, const Encoded& expected) {
  CHECK(got.ids == expected.ids);
  CHECK(got.documents == expected.documents);
  CHECK(got.counts.bytes == expected.counts.bytes);
  CHECK(got.counts.characters == expected.counts.characters);
  CHECK(got.counts.words == expected.counts.words);
  CHECK(got.counts.lines == expected.counts.lines);
  CHECK(got.counts.unknown == expected.counts.unknown);
}

Vocabulary vocabulary_of(const std::vector<std::string>& texts, const VocabularyRules& rules) {
  const TextFiles files(texts);
  return build_vocabulary(files.names(), rules).vocabulary;
}

VocabularyRules rules_for(TokenType type, bool lowercase_text, Blanks blanks) {
  VocabularyRules rules;
  rules.type = type;
  rules.blanks = blanks;
  rules.lowercase = lowercase_text;
  rules.eos = Presence::kAlways;
  rules.unk = Presence::kAlways;
  rules.invalid = InvalidText::kReplace;
  return rules;
}

void check_random_texts(TokenType type, bool lowercase_text, Blanks blanks = Blanks::kAscii) {
  testing::Random random(static_cast<unsigned>(type) * 2 + (lowercase_text ? 1 : 0));
  for (int round = 0; round < 8; ++round) {
    // The vocabulary is made from half of the text, so that the other half has unknown tokens.
    const Vocabulary vocabulary = vocabulary_of({testing::random_lines(random) + " the x"},
                                                rules_for(type, lowercase_text, blanks));
    std::vector<std::string> texts;
    for (std::size_t count = testing::below(random, 4); count > 0; --count) {
      texts.push_back((testing::below(random, 3) == 0 ? "\uFEFF" : "") +
                      testing::random_lines(random));
      if (testing::below(random, 2) == 0) {
        texts.back() += "a\xE2\x96 b\xF0\x9F\n\xC3" + testing::random_lines(random);
      }
    }
    const TextFiles files(texts);
    if (texts.empty()) continue;
    for (const EosRule eos : {EosRule::kNone, EosRule::kLine, EosRule::kDouble}) {
      for (const char* documents : {"blank", "file", "line", "none", "x"}) {
        const Encoded expected = Oracle(vocabulary, eos, documents).encode(texts);
        const EncodeOptions options{eos, DocumentRule(documents), InvalidText::kReplace,
                                    UnknownRule::kUnk};
        for (const std::size_t block_bytes : {1, 100, 1025, 1 << 20}) {
          check_equal(encode(files.names(), vocabulary, options, 1, block_bytes), expected);
        }
        for (const int threads : {2, 3, 8}) {
          check_equal(encode(files.names(), vocabulary, options, threads, 50), expected);
        }
      }
    }
  }
}

TEST_CASE("encode_files: words are encoded as the naive encoder does") {
  check_random_texts(TokenType::kWord, false);
  check_random_texts(TokenType::kWord, true);
}

TEST_CASE("encode_files: words between blanks of Unicode are encoded as the naive encoder does") {
  check_random_texts(TokenType::kWord, false, Blanks::kUnicode);
  check_random_texts(TokenType::kWord, true, Blanks::kUnicode);
}

TEST_CASE("encode_files: a byte order mark that begins a file is not a part of its words") {
  const Vocabulary vocabulary = vocabulary_of({"a x\n"}, {});
  const TokenId a = vocabulary.find("a"), x = vocabulary.find("x"), eos = 0, unk = 1;
  struct Row {
    std::vector<std::string> texts;
    std::vector<TokenId> ids;
    std::vector<std::size_t> documents;  // where a line begins with x
    shard::TextCounts counts;
  };
  // The expected bytes and characters include the byte order marks of the files.
  const std::vector<Row> rows = {
      {{"\uFEFFa\n"}, {a, eos}, {0}, {5, 3, 1, 1, 0}},
      {{"a\n", "\uFEFFx\n"}, {a, eos, x, eos}, {0, 2}, {7, 5, 2, 2, 0}},
      {{"a\n", "\uFEFF\n", "x"}, {a, eos, eos, x, eos}, {0, 3}, {7, 5, 2, 3, 0}},
      {{"\uFEFF"}, {}, {}, {3, 1, 0, 0, 0}},
      {{"\uFEFF a"}, {a, eos}, {0}, {5, 3, 1, 1, 0}},
      {{"\uFEFF\uFEFFa"}, {unk, eos}, {0}, {7, 3, 1, 1, 1}},
      {{"a \uFEFF\n\uFEFFx\n"}, {a, unk, eos, unk, eos}, {0}, {11, 7, 3, 2, 2}},
  };
  const DocumentRule begins("^x");
  for (const Row& row : rows) {
    CAPTURE(row.texts);
    const TextFiles files(row.texts);
    for (const std::size_t block_bytes : {1, 1000}) {
      const Encoded got =
          encode(files.names(), vocabulary, {EosRule::kLine, begins}, 1, block_bytes);
      check_equal(got, {row.ids, row.documents, row.counts});
    }
  }
}

TEST_CASE(
    "encode_files: characters and bytes keep a byte order mark, and document rules do not see it") {
  for (const TokenType type : {TokenType::kChar, TokenType::kByte}) {
    VocabularyRules rules;
    rules.type = type;
    const Vocabulary vocabulary = vocabulary_of({"\uFEFFax\n"}, rules);
    const TextFiles files({"a\n", "\uFEFFx\n"});
    EncodeOptions options{EosRule::kNone, DocumentRule("^x")};
    const Encoded got = encode(files.names(), vocabulary, options, 1, 1000);
    CHECK(got.ids.size() == (type == TokenType::kChar ? 5 : 7));
    CHECK(got.documents == std::vector<std::size_t>{0, 2});
    CHECK(got.counts.words == 2);
  }
}

TEST_CASE("encode_files: characters are encoded as the naive encoder does") {
  check_random_texts(TokenType::kChar, false);
  check_random_texts(TokenType::kChar, true);
}

TEST_CASE("encode_files: bytes are encoded as the naive encoder does") {
  check_random_texts(TokenType::kByte, false);
}

TEST_CASE("encode_files: errors name file, line and text") {
  const Vocabulary vocabulary = vocabulary_of({"a b <unk>\n"}, {});
  const TextFiles files({"a\na b c\n", "a\n\nb \xFF"});
  EncodeOptions options;
  options.unknown = UnknownRule::kError;
  for (const std::size_t block_bytes : {1, 1000}) {
    CHECK(contains(complaint([&] { encode(files.names(), vocabulary, options, 1, block_bytes); }),
                   "0.txt: line 2: 'c' is outside the vocabulary"));
    const TextFiles unseen({"10\u00A0km"});
    CHECK(contains(complaint([&] { encode(unseen.names(), vocabulary, options, 1, block_bytes); }),
                   "'10\\xC2\\xA0km' is outside the vocabulary"));
    CHECK(contains(complaint([&] { encode({files.names()[1]}, vocabulary, {}, 2, block_bytes); }),
                   "1.txt: line 3: invalid UTF-8: byte 0xFF at offset 5"));
  }
  const TextFiles literal({"a <unk> b\n"});
  CHECK(complaint([&] { encode(literal.names(), vocabulary, options, 1, 1000); }) == "");
}

TEST_CASE("Unknowns: a vocabulary without <unk> accepts no unknown text") {
  VocabularyRules rules;
  rules.unk = Presence::kNever;
  const Vocabulary vocabulary = vocabulary_of({"a <unk> b\n"}, rules);
  CHECK(vocabulary.size() == 4);
  const TextFiles known({"b <unk>\n"}), unknown({"b c\n"});
  CHECK(encode(known.names(), vocabulary, {}, 1, 1000).ids == std::vector<TokenId>{3, 1, 0});
  CHECK(contains(complaint([&] { encode(unknown.names(), vocabulary, {}, 1, 1000); }),
                 "'c' is outside the vocabulary, which has no <unk>"));
}

TEST_CASE("encode_files: a word <eos> in the text is never a line end") {
  const Vocabulary vocabulary = vocabulary_of({"a b\n"}, {});
  const TextFiles files({"a <eos> b\n"});
  const Encoder encoder(vocabulary, {});
  RecordingSink sink;
  const EncodeTotals totals = encode_files(files.names(), encoder, 1, sink, [] {});
  CHECK(sink.encoded.ids == std::vector<TokenId>{2, 1, 3, 0});
  CHECK(totals.reserved == 1);
  CHECK(totals.counts.unknown == 1);
}

TEST_CASE("Encoder: <eos> must be in the vocabulary") {
  const Vocabulary bytes = vocabulary_of({"a"}, {TokenType::kByte});
  EncodeOptions options;
  CHECK_THROWS_AS(Encoder(bytes, options), UsageError);
  options.eos = EosRule::kNone;
  CHECK_NOTHROW(Encoder(bytes, options));
}

TEST_CASE("encode_files: no text gives no tokens and no documents") {
  const Vocabulary vocabulary = vocabulary_of({"a"}, {});
  const TextFiles files({"", ""});
  const Encoded encoded = encode(files.names(), vocabulary, {}, 2, 100);
  CHECK(encoded.ids.empty());
  CHECK(encoded.documents.empty());
  CHECK(encoded.counts.lines == 0);
}

}  // namespace
}  // namespace ql::text
