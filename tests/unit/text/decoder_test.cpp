// Tests decoding: the texts that survive, and those that do not.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "text/decoder.h"
#include "text/encoder.h"
#include "text/vocabulary_builder.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using testing::TextFiles;

std::string round_trip(const std::string& text, const VocabularyRules& rules, EosRule eos,
                       const char* documents = "file") {
  const TextFiles files({text});
  const Vocabulary vocabulary = build_vocabulary(files.names(), rules).vocabulary;
  const Encoder encoder(vocabulary, {eos, DocumentRule(documents)});
  std::string decoded;
  Decoder decoder(vocabulary, {eos, vocabulary.line_style()},
                  [&decoded](std::string_view piece) { decoded += piece; });
  encode_files(
      files.names(), encoder, 1, decoder, [] {}, 64);
  decoder.finish(std::nullopt);
  return decoded;
}

VocabularyRules rules_for(TokenType type) {
  VocabularyRules rules;
  rules.type = type;
  rules.eos = Presence::kAlways;
  return rules;
}

constexpr EosRule kAllRules[] = {EosRule::kNone, EosRule::kLine, EosRule::kDouble};

TEST_CASE("Decoder: characters and bytes survive for all rules") {
  testing::Random random(6);
  for (int round = 0; round < 40; ++round) {
    const std::string text = "a" + testing::random_lines(random);
    std::string bytes;
    for (std::size_t i = testing::below(random, 200); i > 0; --i) {
      bytes.push_back(static_cast<char>(testing::below(random, 9) == 0 ? '\n' : random()));
    }
    for (const EosRule eos : kAllRules) {
      CHECK(round_trip(text, rules_for(TokenType::kChar), eos) == text);
      CHECK(round_trip(text, rules_for(TokenType::kByte), eos, "line") == text);
      CHECK(round_trip(bytes, rules_for(TokenType::kByte), eos) == bytes);
    }
  }
}

TEST_CASE("Decoder: words with single blanks survive, plain and padded") {
  testing::Random random(7);
  const std::vector<std::string> words = {"the", "a", "<unk>", "Σ", "\u00A0", "x"};
  for (int round = 0; round < 60; ++round) {
    std::string plain, padded;
    for (std::size_t lines = 1 + testing::below(random, 5); lines > 0; --lines) {
      padded += " ";
      for (std::size_t count = testing::below(random, 4), i = 0; i < count; ++i) {
        const std::string& word = words[testing::below(random, words.size())];
        plain += (i == 0 ? "" : " ") + word;
        padded += word + " ";
      }
      plain += "\n";
      padded += "\n";
    }
    if (plain.find_first_not_of('\n') == std::string::npos) continue;
    for (const EosRule eos : {EosRule::kLine, EosRule::kDouble}) {
      for (const char* documents : {"file", "line", "blank"}) {
        CHECK(round_trip(plain, rules_for(TokenType::kWord), eos, documents) == plain);
        CHECK(round_trip(padded, rules_for(TokenType::kWord), eos, documents) == padded);
      }
    }
  }
}

TEST_CASE("Decoder: changes that words do not survive") {
  const VocabularyRules words = rules_for(TokenType::kWord);
  CHECK(round_trip("a  b\tc \r\n d", words, EosRule::kLine) == "a b c\nd\n");
  CHECK(round_trip("a b\nc\n", words, EosRule::kNone) == "a b c\n");
  CHECK(round_trip("a b\n\nc\n", words, EosRule::kNone, "line") == "a b\nc\n");
}

std::string decode(const Vocabulary& vocabulary, const std::vector<TokenId>& ids,
                   DecodeOptions options) {
  std::string decoded;
  Decoder decoder(vocabulary, options, [&decoded](std::string_view piece) { decoded += piece; });
  // Ids come one by one, so the state has to survive between calls.
  for (const TokenId id : ids) decoder.write(&id, 1);
  decoder.finish(std::nullopt);
  return decoded;
}

TEST_CASE("Decoder: a part of a text decodes as far as possible") {
  const TextFiles files({"a b\n"});
  const Vocabulary vocabulary = build_vocabulary(files.names(), {}).vocabulary;
  const DecodeOptions plain{EosRule::kLine, LineStyle::kPlain};
  const DecodeOptions padded{EosRule::kLine, LineStyle::kPadded};
  const DecodeOptions twice{EosRule::kDouble, LineStyle::kPlain};
  CHECK(decode(vocabulary, {}, plain) == "");
  CHECK(decode(vocabulary, {2, 1, 0, 0, 3}, plain) == "a <unk>\n\nb\n");
  CHECK(decode(vocabulary, {2, 1, 0, 0, 3}, padded) == " a <unk> \n \n b \n");
  CHECK(decode(vocabulary, {3, 0, 0, 2, 0, 0, 0}, twice) == "b\na\n\n");
}

TEST_CASE("Decoder: an unknown character becomes U+FFFD") {
  const TextFiles files({"ab"});
  const Vocabulary vocabulary = build_vocabulary(files.names(), {TokenType::kChar}).vocabulary;
  CHECK(decode(vocabulary, {0, 1, 2}, {}) ==
        "\uFFFD"
        "ab");
}

TEST_CASE("Decoder: an id outside the vocabulary is an error") {
  const TextFiles files({"a"});
  const Vocabulary vocabulary = build_vocabulary(files.names(), {}).vocabulary;
  CHECK(testing::contains(test::complaint([&] { decode(vocabulary, {3}, {}); }),
                          "token id 3 is outside the vocabulary of 3 entries"));
}

}  // namespace
}  // namespace ql::text
