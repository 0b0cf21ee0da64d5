// Tests with damaged vocabulary files.
#include <doctest/doctest.h>

#include "text/vocabulary_builder.h"
#include "unit/damage.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

std::string text_of(TokenType type) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += i % 7 == 0 ? "walked\n" : i % 2 == 0 ? "talker " : "walking ";
  }
  const testing::TextFiles files({text});
  VocabularyRules rules;
  rules.type = type;
  if (type == TokenType::kSentencePiece) {
    rules.max_size = 30;
    rules.unk = Presence::kAlways;
  }
  return build_vocabulary(files.names(), rules).vocabulary.to_text(Json::object());
}

}  // namespace

// The hash covers the meaning of ids. Counts and line style only describe the text.
TEST_CASE("parse_vocabulary: no damage gives ids another meaning") {
  ql::test::Damage damage(27);
  for (const TokenType type :
       {TokenType::kWord, TokenType::kChar, TokenType::kByte, TokenType::kSentencePiece}) {
    CAPTURE(to_text(type));
    const std::string good = text_of(type);
    const Vocabulary made = parse_vocabulary(good, "v.json");
    for (int round = 0; round < ql::test::damage_rounds(300); ++round) {
      CAPTURE(round);
      const std::string damaged = damage(good);
      test::complaint([&] {
        const Vocabulary read = parse_vocabulary(damaged, "v.json");
        CHECK(read.hash() == made.hash());
        CHECK(read.info() == made.info());
        for (TokenId id = 0; id < made.size(); ++id) CHECK(read.token(id) == made.token(id));
      });
    }
  }
}

}  // namespace ql::text
