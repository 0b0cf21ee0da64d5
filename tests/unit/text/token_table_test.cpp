// Tests the table of tokens, compared with a map.

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_table.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

TEST_CASE("TokenTable: an empty table finds nothing") {
  const TokenTable table;
  CHECK(table.size() == 0);
  CHECK(table.find("") == TokenTable::kNone);
  CHECK(table.find("a") == TokenTable::kNone);
}

TEST_CASE("TokenTable: agrees with a map") {
  testing::Random random(3);
  TokenTable table;
  std::map<std::string, std::uint32_t> oracle;
  const auto random_token = [&random] {
    std::string token;
    // Tokens have few letters and all lengths around the 8-byte steps of the hash; NUL is a letter.
    for (std::size_t left = testing::below(random, 20); left > 0; --left) {
      token.push_back("ab\0\xFF"[testing::below(random, 4)]);
    }
    return token;
  };
  for (int step = 0; step < 60000; ++step) {
    const std::string token = random_token();
    const auto known = oracle.find(token);
    REQUIRE(table.find(token) == (known == oracle.end() ? TokenTable::kNone : known->second));
    const auto [position, added] = oracle.emplace(token, table.size());
    REQUIRE(table.insert(token) == position->second);
  }
  REQUIRE(table.size() == oracle.size());
  CHECK(table.size() > 20000);
  for (const auto& [token, id] : oracle) {
    REQUIRE(table.token(id) == token);
    REQUIRE(table.find(token) == id);
  }
}

TEST_CASE("TokenTable: many words at once give the same result as one by one") {
  testing::Random random(4);
  TokenTable many, one_by_one;
  for (int round = 0; round < 200; ++round) {
    // The words belong to one text, up to its last byte: no byte after it may be read.
    const std::size_t count = testing::below(random, 300);
    std::vector<std::size_t> ends(1);
    std::string bytes;
    while (ends.size() <= count) {
      for (std::size_t left = testing::below(random, 28); left > 0; --left) {
        bytes.push_back("ab\0\xFF"[testing::below(random, 4)]);
      }
      ends.push_back(bytes.size());
    }
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const std::string_view text(exact.data(), exact.size());
    std::vector<Word> words;
    for (std::size_t i = 0; i < count; ++i) {
      words.push_back({text.data() + ends[i], ends[i + 1] - ends[i]});
    }
    std::vector<std::uint32_t> found(count), expected(count);
    many.find(text, words.data(), count, found.data());
    for (std::size_t i = 0; i < count; ++i) expected[i] = one_by_one.find(words[i].view());
    REQUIRE(found == expected);
    if (round % 3 == 0) continue;
    many.insert(text, words.data(), count, found.data());
    for (std::size_t i = 0; i < count; ++i) expected[i] = one_by_one.insert(words[i].view());
    REQUIRE(found == expected);
  }
  CHECK(many.size() == one_by_one.size());
}

}  // namespace
}  // namespace ql::text
