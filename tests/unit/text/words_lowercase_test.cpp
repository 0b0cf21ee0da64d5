// Tests lower case.

#include <doctest/doctest.h>

#include <string>

#include "text/words.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

TEST_CASE("lowercase: follows the Unicode rules") {
  CHECK(lowercase("") == "");
  CHECK(lowercase("Hello, World 42") == "hello, world 42");
  CHECK(lowercase("ÀÉÎ ẞ ДОМ") == "àéî ß дом");
  CHECK(lowercase("İ") == "i\u0307");
  CHECK(lowercase("I ı") == "i ı");
  CHECK(lowercase("ǅ") == "ǆ");
  CHECK(lowercase(std::string("A\0B", 3)) == std::string("a\0b", 3));
}

TEST_CASE("lowercase: a sigma is final at the end of a word only") {
  CHECK(lowercase("ΟΔΥΣΣΕΥΣ") == "οδυσσευς");
  CHECK(lowercase("ΑΣ ΑΣ\nΑΣ") == "ας ας\nας");
  CHECK(lowercase("ΑΣ. ΑΣ'Α Σ") == "ας. ασ'α σ");
}

TEST_CASE("lowercase: text may become longer") {
  std::string text, expected;
  for (int i = 0; i < 5000; ++i) {
    text += "İ";
    expected += "i\u0307";
  }
  CHECK(lowercase(text) == expected);
}

TEST_CASE("lowercase: text may be cut after any blank") {
  testing::Random random(2);
  for (int round = 0; round < 500; ++round) {
    const std::string text = testing::random_text(
        random, {"Σ", "Α", "'", ".", " ", "\n", "\t", "İ", "\u0301", "a", "Σ "}, 20);
    std::string pieces;
    for (std::size_t begin = 0, end = 0; end < text.size(); ++end) {
      if (end + 1 < text.size() && !is_blank(text[end])) continue;
      pieces += lowercase(text.substr(begin, end + 1 - begin));
      begin = end + 1;
    }
    CHECK(pieces == lowercase(text));
  }
}

}  // namespace
}  // namespace ql::text
