// Tests how items are encoded: what belongs to a choice where it meets its context.

#include "text/items.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "unit/text_support.h"

namespace ql::text {

namespace {

Vocabulary vocabulary_of(TokenType type, std::vector<std::string> tokens) {
  VocabularyContent content;
  content.type = type;
  tokens.insert(tokens.begin(), {"<eos>", "<unk>"});
  content.counts.assign(tokens.size(), 1);
  content.tokens = std::move(tokens);
  content.eos = 0;
  content.unk = 1;
  return Vocabulary(std::move(content), "a test");
}

Json item_of(const std::string& context, const std::string& choice) {
  return {{"context", context}, {"choices", {choice}}};
}

// Returns the ids of the context and of the choice.
std::string encoded(const ItemEncoder& encoder, const std::string& context,
                    const std::string& choice) {
  const Json json = encoder.encode(item_of(context, choice), "items: line 1");
  return json["context"].dump() + json["choices"][0]["ids"].dump();
}

}  // namespace

TEST_CASE("ItemEncoder: words are split where context and choice meet") {
  const Vocabulary words = vocabulary_of(TokenType::kWord, {"the", "cat", "s"});
  const ItemEncoder encoder(&words, "");
  CHECK(encoded(encoder, "the cat", " s") == "[2,3][4]");
  CHECK(encoded(encoder, "the cat ", "s") == "[2,3][4]");
  CHECK(encoded(encoder, "the cat", "s") == "[2,3][4]");  // not the unknown word "cats"
  CHECK(encoded(encoder, "the\n", "cats\ncat") == "[2,0][1,0,3]");
  CHECK(encoded(encoder, "", "") == "[][]");
  const Json row = encoder.encode(item_of("the", " caf\u00e9 the"), "")["choices"][0];
  CHECK(row["unknown"] == 1);
  CHECK(row["bytes"] == 10);
  CHECK(row["characters"] == 9);
}

TEST_CASE("ItemEncoder: blanks at the end of a context of characters belong to the choice") {
  const Vocabulary characters = vocabulary_of(TokenType::kChar, {" ", "a", "b", "\u0301"});
  const ItemEncoder encoder(&characters, "");
  CHECK(encoded(encoder, "a b", " a") == "[3,2,4][2,3]");
  CHECK(encoded(encoder, "a b ", "a") == "[3,2,4][2,3]");
  CHECK(encoded(encoder, "a  ", "") == "[3][2,2]");
  CHECK(encoded(encoder, " ", "b") == "[][2,4]");
  CHECK(encoded(encoder, "a\n", "b") == "[3][0,4]");
  CHECK(encoded(encoder, "a", "\u0301b") == "[3][5,4]");
  const Json row = encoder.encode(item_of("a ", "b"), "")["choices"][0];
  CHECK(row["bytes"] == 1);  // of the choice as it is given
}

TEST_CASE("ItemEncoder: ids are checked, and text needs a vocabulary") {
  const Vocabulary words = vocabulary_of(TokenType::kWord, {"the"});
  const ItemEncoder with(&words, ""), without(nullptr, "there is no vocabulary");
  const Json ids = {{"context", {2}}, {"choices", {{1, 2}, Json::array()}}};
  CHECK(with.encode(ids, "")["choices"][0]["unknown"] == 1);
  CHECK(without.encode(ids, "")["choices"][0]["unknown"].is_null());
  CHECK(without.encode(ids, "")["choices"][0]["bytes"].is_null());
  const Json outside = {{"context", {3}}, {"choices", {{1}}}};
  CHECK_THROWS_WITH_AS(with.encode(outside, "f: line 2"),
                       "f: line 2: the id 3 is outside the vocabulary of 3 entries", Error);
  CHECK_THROWS_WITH_AS(without.encode(item_of("a", "b"), "f: line 2"),
                       "f: line 2: there is no vocabulary", Error);
}

TEST_CASE("parse_item: damaged lines are refused with their place") {
  const auto refused = [](const std::string& line, const std::string& message) {
    CHECK_THROWS_WITH_AS(parse_item(line, "f: line 3"), doctest::Contains(message.c_str()),
                         FormatError);
  };
  refused("", "f: line 3: the line is empty");
  refused("{\"context\": \"a\", \"context\": \"b\"}", "f: line 3, column");
  refused("{\"context\": \"a\", \"choices\": [[1]]}", "f: line 3: a choice is not a text");
  refused("{\"context\": \"\", \"choices\": [\"\"], \"id\": 18446744073709551616}",
          "f: line 3: id: the number has more than 64 bits; write it as a text");
  CHECK(parse_item("{\"context\": \"\", \"choices\": [\"\"], \"x\": 1}\r", "")["x"] == 1);
}

}  // namespace ql::text
