// Splitting into words, many bytes at a time, against one byte at a time.
#include "text/words.h"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "unit/text_support.h"

namespace ql::text {
namespace {

std::vector<std::string> naive_words(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const bool blank = std::string(" \t\n\v\f\r").find(c) != std::string::npos;
    if (!blank && !inside) words.emplace_back();
    if (!blank) words.back() += c;
    inside = !blank;
  }
  return words;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::array<Word, WordSplitter::kMostWords> found;
  WordSplitter splitter(text);
  while (const std::size_t count = splitter.next(found.data())) {
    REQUIRE(count <= found.size());
    for (std::size_t i = 0; i < count; ++i) words.emplace_back(found[i].view());
  }
  return words;
}

TEST_CASE("both ways to find blanks agree with the definition, for every byte at every place") {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool blank = std::string(" \t\n\v\f\r").find(c) != std::string::npos;
    REQUIRE(is_blank(c) == blank);
    for (std::size_t place = 0; place < kBlankBits; ++place) {
      for (const char other : {'x', ' ', '\xFF'}) {
        std::string bytes(kBlankBits, other);
        bytes[place] = c;
        const std::uint64_t others = other == ' ' ? ~std::uint64_t{0} : 0;
        const std::uint64_t bit = std::uint64_t{1} << place;
        const std::uint64_t expected = (others & ~bit) | (blank ? bit : 0);
        REQUIRE(blank_bits(bytes.data()) == expected);
        REQUIRE(blank_bits_one_by_one(bytes.data()) == expected);
      }
    }
  }
}

TEST_CASE("both ways to find blanks agree on random bytes") {
  testing::Random random(5);
  for (int round = 0; round < 20000; ++round) {
    std::array<char, kBlankBits + 3> bytes;
    for (char& byte : bytes) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 40));
    const std::size_t shift = testing::below(random, 4);
    REQUIRE(blank_bits(bytes.data() + shift) == blank_bits_one_by_one(bytes.data() + shift));
  }
}

TEST_CASE("words are those of the naive splitter") {
  testing::Random random(6);
  const std::vector<std::string> kinds = {std::string("a \0b", 4), " a", "abcdefg ",
                                          "\t\r\n x\xC2\xA0", std::string("\xFF\x00\x85 ", 4)};
  for (std::size_t size = 0; size < 400; ++size) {
    for (const std::string& letters : kinds) {
      std::string text;
      while (text.size() < size) text += letters[testing::below(random, letters.size())];
      CAPTURE(text);
      const auto expected = naive_words(text);
      REQUIRE(split(text) == expected);
      REQUIRE(count_word_starts(text, false) == static_cast<std::int64_t>(expected.size()));
      const bool continued = !text.empty() && !is_blank(text[0]);
      REQUIRE(count_word_starts(text, true) ==
              static_cast<std::int64_t>(expected.size()) - (continued ? 1 : 0));
    }
  }
}

TEST_CASE("words longer than any batch, and nothing but blanks") {
  const std::string longest(100000, 'w');
  CHECK(split(longest) == std::vector<std::string>{longest});
  CHECK(split(" " + longest + "\n" + longest) == std::vector<std::string>{longest, longest});
  CHECK(split(std::string(100000, ' ')).empty());
  CHECK(split("").empty());
  // Every 64 bytes hold as many words as fit, for longer than a batch.
  std::string dense;
  for (int i = 0; i < 1000; ++i) dense += "a ";
  CHECK(split(dense).size() == 1000);
}

}  // namespace
}  // namespace ql::text
