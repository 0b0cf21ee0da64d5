// Tests "did you mean ...?" against the definition of the distance.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/strings.h"

namespace ql {

namespace {

// Computes the optimal string alignment from its definition on prefixes.
std::size_t slow_distance(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string a1 = a.substr(0, a.size() - 1), b1 = b.substr(0, b.size() - 1);
  std::size_t best = std::min({slow_distance(a1, b) + 1, slow_distance(a, b1) + 1,
                               slow_distance(a1, b1) + (a.back() == b.back() ? 0 : 1)});
  if (!a1.empty() && !b1.empty() && a.back() == b1.back() && a1.back() == b.back()) {
    best =
        std::min(best, slow_distance(a1.substr(0, a1.size() - 1), b1.substr(0, b1.size() - 1)) + 1);
  }
  return best;
}

}  // namespace

TEST_CASE("nearest: the candidate with the smallest distance") {
  const std::vector<std::string> options = {"frame-tokens", "shard-tokens", "level", "force"};
  CHECK(nearest("frame-token", options) == "frame-tokens");
  CHECK(nearest("farme-tokens", options) == "frame-tokens");
  CHECK(nearest("lvel", options) == "level");
  CHECK(nearest("focre", options) == "force");
  CHECK(nearest("level", options) == "level");
  CHECK(nearest("sh", options) == "shard-tokens");
}

TEST_CASE("nearest: no candidate is near enough") {
  CHECK(nearest("zzzzzz", {"level", "force"}).empty());
  CHECK(nearest("", {"level"}).empty());
  CHECK(nearest("level", {}).empty());
  // One letter of three is a third, one of two is more.
  CHECK(nearest("abx", {"abc"}) == "abc");
  CHECK(nearest("ax", {"ab"}).empty());
}

TEST_CASE("nearest: the first of equally near candidates wins") {
  CHECK(nearest("abcx", {"abca", "abcb"}) == "abca");
}

TEST_CASE("nearest: agrees with the definition of the distance") {
  std::mt19937 random(1);
  const auto word = [&] {
    std::string text(1 + random() % 5, 'a');
    for (char& letter : text) letter = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    const std::string typed = word(), candidate = word();
    CAPTURE(typed);
    CAPTURE(candidate);
    const bool near =
        slow_distance(typed, candidate) * 3 <= std::max(typed.size(), candidate.size());
    const bool begins = typed.size() > 1 && candidate.rfind(typed, 0) == 0;
    CHECK((nearest(typed, {candidate}) == candidate) == (near || begins));
  }
}

}  // namespace ql
