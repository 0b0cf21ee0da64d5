// Tests vocabularies: building, their file and their hash.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "text/vocabulary.h"
#include "text/vocabulary_builder.h"
#include "unit/damage.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;
using testing::TextFiles;

BuiltVocabulary build(const std::string& text, const VocabularyRules& rules = {}) {
  const TextFiles files({text});
  return build_vocabulary(files.names(), rules);
}

std::vector<std::string> tokens_of(const Vocabulary& vocabulary) {
  std::vector<std::string> tokens;
  for (TokenId id = 0; id < vocabulary.size(); ++id) tokens.emplace_back(vocabulary.token(id));
  return tokens;
}

using Texts = std::vector<std::string>;
using Counts = std::vector<std::int64_t>;

TEST_CASE("build_vocabulary: words are sorted by count and then by bytes, after the specials") {
  const auto built = build("b a c\nb \xC3\xA9 c b <unk>\n");
  CHECK(tokens_of(built.vocabulary) == Texts{"<eos>", "<unk>", "b", "c", "a", "é"});
  CHECK(built.vocabulary.counts() == Counts{2, 1, 3, 2, 1, 1});
  CHECK(built.vocabulary.eos() == TokenId{0});
  CHECK(built.vocabulary.unk() == TokenId{1});
  CHECK(built.lines == 2);
  CHECK(built.tokens == 8);
  CHECK(built.types == 5);
  CHECK(built.unknown == 0);
}

TEST_CASE("build_vocabulary: rare words and words beyond the size become <unk>") {
  const std::string text = "a a a b b c d <unk> <eos>\n";
  VocabularyRules rules;
  rules.min_count = 2;
  auto built = build(text, rules);
  CHECK(tokens_of(built.vocabulary) == Texts{"<eos>", "<unk>", "a", "b"});
  CHECK(built.vocabulary.counts() == Counts{1, 4, 3, 2});
  CHECK(built.unknown == 3);
  CHECK(built.reserved == 1);
  rules.min_count = 1;
  rules.max_size = 3;
  built = build(text, rules);
  CHECK(tokens_of(built.vocabulary) == Texts{"<eos>", "<unk>", "a"});
  CHECK(built.unknown == 5);
}

TEST_CASE("build_vocabulary: the options decide which specials exist") {
  VocabularyRules rules;
  rules.eos = Presence::kNever;
  const auto no_eos = build("a <eos> a\n", rules);
  CHECK(tokens_of(no_eos.vocabulary) == Texts{"<unk>", "a", "<eos>"});
  CHECK(no_eos.vocabulary.unk() == TokenId{0});
  CHECK(no_eos.reserved == 0);
  rules.unk = Presence::kNever;
  CHECK(tokens_of(build("a a <unk>\n", rules).vocabulary) == Texts{"a", "<unk>"});
  CHECK_FALSE(build("a", rules).vocabulary.unk().has_value());
}

TEST_CASE("build_vocabulary: characters") {
  const auto built = build("b\xC3\xA9\xC3\xA9\n", {TokenType::kChar});
  CHECK(tokens_of(built.vocabulary) == Texts{"<unk>", "é", "\n", "b"});
  CHECK(built.vocabulary.counts() == Counts{0, 2, 1, 1});
}

TEST_CASE("build_vocabulary: bytes are their own ids, for any text") {
  const auto built = build("ba\xFF\n", {TokenType::kByte});
  CHECK(built.vocabulary.size() == 256);
  CHECK(built.vocabulary.token('a') == "<0x61>");
  CHECK(built.vocabulary.counts()['a'] == 1);
  CHECK(built.types == 4);
  CHECK(built.vocabulary.hash() == build("", {TokenType::kByte}).vocabulary.hash());
}

TEST_CASE("build_vocabulary: lower-casing happens before counting") {
  VocabularyRules rules;
  rules.lowercase = true;
  CHECK(tokens_of(build("The THE the ΑΣ\n", rules).vocabulary) ==
        Texts{"<eos>", "<unk>", "the", "ας"});
}

TEST_CASE("build_vocabulary: the line style is padded only when every line is") {
  const std::map<std::string, LineStyle> expected = {{" a b \n \n c \n", LineStyle::kPadded},
                                                     {" a b \n \n c ", LineStyle::kPadded},
                                                     {"a b\n", LineStyle::kPlain},
                                                     {" a b \n\n", LineStyle::kPlain},
                                                     {" a  b \n", LineStyle::kPlain},
                                                     {" a b\n", LineStyle::kPlain},
                                                     {" a\tb \n", LineStyle::kPlain},
                                                     {" a b \r\n", LineStyle::kPlain},
                                                     {"  a \n", LineStyle::kPlain},
                                                     {" a \n  \n", LineStyle::kPlain},
                                                     {"a \n", LineStyle::kPlain}};
  for (const auto& pair : expected) {
    CAPTURE(pair.first);
    CHECK(build(pair.first).vocabulary.line_style() == pair.second);
  }
  std::string line = " ";
  while (line.size() < 3 * TextReader::kBlockBytes) line += "word ";
  CHECK(build(line + "\n").vocabulary.line_style() == LineStyle::kPadded);
  CHECK(build(line + " \n").vocabulary.line_style() == LineStyle::kPlain);
}

TEST_CASE("build_vocabulary: blanks of Unicode end words, and the file and its hash record it") {
  const std::string text = "10\u00A0km\u3000km\x1Fkm\n \u2003 \n";
  VocabularyRules rules;
  CHECK(tokens_of(build(text, rules).vocabulary) ==
        Texts{"<eos>", "<unk>", "10\u00A0km\u3000km\x1Fkm", "\u2003"});
  CHECK(build(text, rules).vocabulary.to_text(Json::object()).find("blanks") == std::string::npos);
  rules.blanks = Blanks::kUnicode;
  const Vocabulary made = build(text, rules).vocabulary;
  CHECK(tokens_of(made) == Texts{"<eos>", "<unk>", "km", "10"});
  ContentHasher hasher;
  const std::string content =
      "ql-vocabulary 1\ntype word\nlowercase false\nblanks unicode\neos 0\nunk 1\ntokens 4\n"
      "5 <eos>\n5 <unk>\n2 km\n2 10\n";
  hasher.update(content.data(), content.size());
  CHECK(made.hash() == hasher.digest());

  Json json = parse_json(made.to_text(Json::object()), "v.json");
  CHECK(json["blanks"] == "unicode");
  CHECK(parse_vocabulary(dump_json(json), "v.json").blanks() == Blanks::kUnicode);
  json["tokens"][2] = "a\u00A0b";
  CHECK(contains(test::complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }),
                 "tokens[2]: expected a word without Unicode blanks, found 'a\\xC2\\xA0b'"));
  json = parse_json(made.to_text(Json::object()), "v.json");
  json.erase("blanks");
  CHECK(contains(test::complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }), "hash"));
  json["blanks"] = "none";
  CHECK(contains(test::complaint([&] { parse_vocabulary(dump_json(json), "v.json"); }), "blanks"));

  rules.type = TokenType::kChar;
  CHECK(contains(test::complaint([&] { build(text, rules); }), "--blanks unicode"));
}

TEST_CASE("build_vocabulary: a line with a blank of Unicode is not padded") {
  VocabularyRules rules;
  rules.blanks = Blanks::kUnicode;
  CHECK(build(" a b \n", rules).vocabulary.line_style() == LineStyle::kPadded);
  for (const char* text : {" a\u00A0b \n", " a \u3000\n", " a\x1C \n", "\u2003a \n"}) {
    CHECK(build(text, rules).vocabulary.line_style() == LineStyle::kPlain);
  }
  CHECK(build(" a\u00A0b \n").vocabulary.line_style() == LineStyle::kPadded);
}

TEST_CASE("build_vocabulary: a byte order mark that begins a file is in no word's count") {
  const TextFiles files({"\uFEFFthe\n", "\uFEFF", "\uFEFF the \uFEFFx\n"});
  const BuiltVocabulary built = build_vocabulary(files.names(), VocabularyRules());
  CHECK(tokens_of(built.vocabulary) == Texts{"<eos>", "<unk>", "the", "\uFEFFx"});
  CHECK(built.lines == 2);
  VocabularyRules rules;
  rules.type = TokenType::kChar;
  CHECK(build("\uFEFFa", rules).vocabulary.find("\uFEFF") != TokenTable::kNone);
}

TEST_CASE("build_vocabulary: counting agrees with a map") {
  testing::Random random(8);
  for (int round = 0; round < 30; ++round) {
    const std::string text = testing::random_text(random, {"a", "b", "é", "😀"}, 500);
    std::map<std::string, std::int64_t> oracle;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t size = 1;
      while (i + size < text.size() && (text[i + size] & 0xC0) == 0x80) ++size;
      ++oracle[text.substr(i, size)];
      i += size;
    }
    const Vocabulary vocabulary = build(text, {TokenType::kChar}).vocabulary;
    REQUIRE(vocabulary.size() == oracle.size() + 1);
    for (TokenId id = 1; id < vocabulary.size(); ++id) {
      CHECK(vocabulary.counts()[id] == oracle[std::string(vocabulary.token(id))]);
      if (id > 1) CHECK(vocabulary.counts()[id] <= vocabulary.counts()[id - 1]);
    }
  }
}

TEST_CASE(
    "build_vocabulary: words are counted as by a map, with the same result for any number of "
    "threads") {
  testing::Random random(12);
  // The text has several blocks of lines, one line of several blocks, words of all lengths up to
  // one that is longer than a block, and no line feed at the end.
  std::string text;
  const auto add_word = [&] {
    for (std::size_t left = 1 + testing::below(random, 20); left > 0; --left) {
      text += "ab\xC3\xA9"[testing::below(random, 2)];
    }
    text += " \t\n\r"[testing::below(random, 4)];
  };
  while (text.size() < 3 * TextReader::kBlockBytes) add_word();
  text += std::string(2 * TextReader::kBlockBytes, 'x') + "\n";
  while (text.size() < 7 * TextReader::kBlockBytes) text += "short ";
  text += std::string(1, '\0') + " \xE2\x80\xA8 end";
  std::map<std::string, std::int64_t> oracle;
  std::string word;
  for (const char c : text + " ") {
    if (std::string(" \t\n\r").find(c) == std::string::npos) {
      word += c;
    } else if (!word.empty()) {
      ++oracle[word];
      word.clear();
    }
  }
  const TextFiles files({text, "", "short short\n"});
  oracle["short"] += 2;
  const auto one = build_vocabulary(files.names(), {}, 1);
  REQUIRE(one.types == static_cast<std::int64_t>(oracle.size()));
  for (TokenId id = 2; id < one.vocabulary.size(); ++id) {
    REQUIRE(one.vocabulary.counts()[id] == oracle[std::string(one.vocabulary.token(id))]);
  }
  for (const TokenType type : {TokenType::kWord, TokenType::kChar, TokenType::kByte}) {
    const auto expected = build_vocabulary(files.names(), {type}, 1);
    for (const int threads : {2, 3, 8}) {
      const auto built = build_vocabulary(files.names(), {type}, threads);
      CHECK(built.vocabulary.to_text({}) == expected.vocabulary.to_text({}));
      CHECK(built.lines == expected.lines);
      CHECK(built.tokens == expected.tokens);
      CHECK(built.types == expected.types);
    }
  }
}

TEST_CASE("build_vocabulary: rules that contradict each other are usage errors") {
  const auto refused = [](const std::function<void(VocabularyRules&)>& change) {
    VocabularyRules rules;
    change(rules);
    CHECK_THROWS_AS(build("a", rules), UsageError);
  };
  refused([](VocabularyRules& r) { r.type = TokenType::kByte, r.lowercase = true; });
  refused([](VocabularyRules& r) { r.type = TokenType::kByte, r.min_count = 2; });
  refused([](VocabularyRules& r) { r.type = TokenType::kByte, r.max_size = 300; });
  refused([](VocabularyRules& r) { r.max_size = 2; });
  refused([](VocabularyRules& r) { r.type = TokenType::kSentencePiece; });
  refused([](VocabularyRules& r) {
    r.type = TokenType::kSentencePiece, r.max_size = 300, r.eos = Presence::kNever;
  });
  refused([](VocabularyRules& r) {
    r.type = TokenType::kSentencePiece, r.max_size = 300, r.min_count = 2;
  });
}

TEST_CASE("build_vocabulary: a text without tokens is refused") {
  CHECK(contains(complaint([] { build(""); }), "no text"));
  // Blank lines are a part of a text; without <eos> they have no counts.
  VocabularyRules rules;
  CHECK(build(" \n\n \t", rules).vocabulary.size() == 2);
  rules.eos = Presence::kNever;
  CHECK(contains(complaint([&] { build(" \n\n \t", rules); }), "no text"));
  CHECK(contains(complaint([] { build("", {TokenType::kChar}); }), "no text"));
}

TEST_CASE("parse_vocabulary: reads everything that to_text() wrote") {
  for (const TokenType type : {TokenType::kWord, TokenType::kChar, TokenType::kByte}) {
    VocabularyRules rules;
    rules.type = type;
    const Vocabulary made = build(" a b \n " + std::string(1, '\0') + "\" \n", rules).vocabulary;
    const Vocabulary read = parse_vocabulary(made.to_text(Json{{"who", "a test"}}), "v.json");
    CHECK(tokens_of(read) == tokens_of(made));
    CHECK(read.counts() == made.counts());
    CHECK(read.hash() == made.hash());
    CHECK(read.info() == made.info());
    CHECK(read.line_style() == made.line_style());
    CHECK(read.to_text(Json{{"who", "a test"}}) == made.to_text(Json{{"who", "a test"}}));
  }
}

TEST_CASE("Vocabulary::hash: the hash is the one that ql-vocabulary(5) defines") {
  const std::string defined =
      "ql-vocabulary 1\ntype word\nlowercase false\neos 0\nunk 1\ntokens 4\n"
      "5 <eos>\n5 <unk>\n3 the\n3 cat\n";
  CHECK(build("the the cat\n").vocabulary.hash() == content_hash(defined));
  CHECK(content_hash(defined) == "faca7de68311fbab1677bcbaf6a4a3fc");
  VocabularyRules rules;
  rules.lowercase = true;
  rules.eos = Presence::kNever;
  CHECK(build("a", rules).vocabulary.hash() ==
        content_hash("ql-vocabulary 1\ntype word\nlowercase true\neos none\nunk 0\ntokens 2\n"
                     "5 <unk>\n1 a\n"));
}

TEST_CASE("Vocabulary::hash: covers the meaning of ids") {
  const std::string hash = build("a b a\n").vocabulary.hash();
  CHECK(build("b a a a\na\n").vocabulary.hash() == hash);  // other counts, same order
  CHECK(build(" b a a \n").vocabulary.hash() == hash);     // another line style
  CHECK(build("b b a\n").vocabulary.hash() != hash);
  CHECK(build("a b a c\n").vocabulary.hash() != hash);
  VocabularyRules rules;
  rules.lowercase = true;
  CHECK(build("a b a\n", rules).vocabulary.hash() != hash);
  rules = {};
  rules.unk = Presence::kNever;
  CHECK(build("a b a\n", rules).vocabulary.hash() != hash);
}

// Returns the message for a vocabulary file changed by hand, whose hash is right unless `change`
// breaks it.
std::string error_for(const std::function<void(Json&)>& change, TokenType type = TokenType::kWord) {
  VocabularyRules rules;
  rules.type = type;
  Json json = parse_json(build("a b a\n", rules).vocabulary.to_text(Json::object()), "v.json");
  change(json);
  return complaint([&] { parse_vocabulary(dump_json(json), "v.json"); });
}

TEST_CASE("parse_vocabulary: a changed vocabulary file is refused, with the place") {
  CHECK(error_for([](Json&) {}) == "");
  CHECK(error_for([](Json& j) { j["later"] = 1; }) == "");
  CHECK(contains(error_for([](Json& j) { j.erase("format"); }), "v.json: the key 'format'"));
  CHECK(contains(error_for([](Json& j) { j["format"] = "x"; }), "expected 'ql-vocabulary'"));
  CHECK(contains(error_for([](Json& j) { j["version"] = 2; }), "version is 2"));
  CHECK(contains(error_for([](Json& j) { j["type"] = "letter"; }),
                 "type: 'letter' is unknown; known names are word"));
  CHECK(contains(error_for([](Json& j) { j["line_style"] = "x"; }), "line_style"));
  CHECK(contains(error_for([](Json& j) { j["tokens"][3] = "a"; }),
                 "tokens[3]: 'a' is already at tokens["));
  CHECK(contains(error_for([](Json& j) { j["tokens"][3] = "x y"; }), "tokens[3]: expected a word"));
  CHECK(contains(error_for([](Json& j) { j["tokens"][3] = ""; }), "tokens[3]: expected a word"));
  CHECK(contains(error_for([](Json& j) { j["tokens"][3] = 7; }), "tokens[3]: expected a string"));
  CHECK(contains(error_for([](Json& j) { j["tokens"][3] = "c"; }), "the hash is"));
  CHECK(contains(error_for([](Json& j) { j["tokens"] = "a"; }),
                 "tokens: expected an array of strings"));
  CHECK(contains(error_for([](Json& j) { j["tokens"] = Json::array(); }),
                 "needs at least one token"));
  CHECK(contains(error_for([](Json& j) { j["counts"].push_back(1); }), "\"counts\" has 5"));
  CHECK(contains(error_for([](Json& j) { j["counts"][2] = -1; }), "counts[2]"));
  CHECK(error_for([](Json& j) { j["counts"][2] = 1.5; }) != "");
  CHECK(contains(error_for([](Json& j) { j["specials"]["eos"] = 4; }), "the last id is 3"));
  CHECK(contains(error_for([](Json& j) { j["specials"]["eos"] = 1; }), "are both 1"));
  CHECK(error_for([](Json& j) { j["specials"]["eos"] = -1; }) != "");
  CHECK(error_for([](Json& j) { j["specials"]["bos"] = 2; }) != "");
  CHECK(error_for([](Json& j) { j["lowercase"] = "no"; }) != "");
  CHECK(error_for([](Json& j) { j.erase("hash"); }) != "");
}

TEST_CASE("parse_vocabulary: characters and bytes are checked, too") {
  const auto in_chars = [](const std::function<void(Json&)>& change) {
    return error_for(change, TokenType::kChar);
  };
  CHECK(in_chars([](Json&) {}) == "");
  CHECK(contains(in_chars([](Json& j) { j["tokens"][2] = "bc"; }), "one code point"));
  CHECK(contains(in_chars([](Json& j) { j["tokens"][2] = ""; }), "one code point"));
  const auto in_bytes = [](const std::function<void(Json&)>& change) {
    return error_for(change, TokenType::kByte);
  };
  CHECK(in_bytes([](Json&) {}) == "");
  CHECK(
      contains(in_bytes([](Json& j) { j["tokens"][2] = "<0x7a>"; }), "tokens[2]: expected a byte"));
  // If a byte could be special, another token could stand for no byte.
  CHECK(contains(in_bytes([](Json& j) {
                   j["specials"]["eos"] = 64;
                   j["tokens"].push_back("x");
                   j["counts"].push_back(0);
                 }),
                 "tokens[256]: expected a byte"));
  CHECK(contains(in_bytes([](Json& j) { j["specials"]["eos"] = 64; }), "expected 257 tokens"));
  CHECK(contains(in_bytes([](Json& j) { j["lowercase"] = true; }), "lower-cased"));
  CHECK(contains(in_bytes([](Json& j) {
                   j["tokens"].push_back("x");
                   j["counts"].push_back(0);
                 }),
                 "tokens[256]: expected a byte"));
}

TEST_CASE("parse_vocabulary: no flipped byte and no cut gives another vocabulary") {
  const Vocabulary made = build("a b a\n").vocabulary;
  const std::string text = made.to_text(Json::object());
  for (const test::Damaged& flipped : test::flipped_bits(text)) {
    std::string hash = made.hash();
    complaint([&] { hash = parse_vocabulary(flipped.bytes, "v.json").hash(); });
    REQUIRE(hash == made.hash());
  }
  for (const test::Damaged& cut : test::cuts(text.substr(0, text.size() - 1))) {
    REQUIRE(complaint([&] { parse_vocabulary(cut.bytes, "v.json"); }) != "");
  }
}

// The hash covers the meaning of ids. Counts and line style only describe the text.
TEST_CASE("parse_vocabulary: no damage gives ids another meaning") {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += i % 7 == 0 ? "walked\n" : i % 2 == 0 ? "talker " : "walking ";
  }
  for (const TokenType type :
       {TokenType::kWord, TokenType::kChar, TokenType::kByte, TokenType::kSentencePiece}) {
    CAPTURE(to_text(type));
    VocabularyRules rules;
    rules.type = type;
    if (type == TokenType::kSentencePiece) {
      rules.max_size = 30;
      rules.unk = Presence::kAlways;
    }
    const std::string good = build(text, rules).vocabulary.to_text(Json::object());
    const Vocabulary made = parse_vocabulary(good, "v.json");
    for (const auto& [what, bytes] : test::Damages(good, 300)) {
      CAPTURE(what);
      complaint([&, &damaged = bytes] {
        const Vocabulary read = parse_vocabulary(damaged, "v.json");
        CHECK(read.hash() == made.hash());
        CHECK(read.info() == made.info());
        for (TokenId id = 0; id < made.size(); ++id) CHECK(read.token(id) == made.token(id));
      });
    }
  }
}

}  // namespace
}  // namespace ql::text
