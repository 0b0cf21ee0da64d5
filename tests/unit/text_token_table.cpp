#include "text/token_table.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "unit/text_support.h"

namespace ql::text {
namespace {

TEST_CASE("an empty table knows nothing") {
  const TokenTable table;
  CHECK(table.size() == 0);
  CHECK(table.find("") == TokenTable::kNone);
  CHECK(table.find("a") == TokenTable::kNone);
}

TEST_CASE("the table agrees with a map") {
  testing::Random random(3);
  TokenTable table;
  std::map<std::string, std::uint32_t> oracle;
  const auto random_token = [&random] {
    std::string token;
    // Few letters and all lengths around the 8-byte steps of the hash; NUL is a letter.
    for (std::size_t left = testing::below(random, 20); left > 0; --left)
      token.push_back("ab\0\xFF"[testing::below(random, 4)]);
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

}  // namespace
}  // namespace ql::text
