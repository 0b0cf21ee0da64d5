// Compares splitting into words, many bytes at a time, with splitting one byte at a time.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/strings.h"
#include "text/words.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using testing::naive_words;

std::vector<std::string> split(const std::string& text, Blanks blanks = Blanks::kAscii) {
  std::vector<std::string> words;
  std::array<Word, WordSplitter::kMostWords> found;
  WordSplitter splitter(text, blanks);
  while (const std::size_t count = splitter.next(found.data())) {
    REQUIRE(count <= found.size());
    for (std::size_t i = 0; i < count; ++i) words.emplace_back(found[i].view());
  }
  return words;
}

TEST_CASE("blank_bits: both functions agree with the definition, for every byte at every place") {
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

TEST_CASE("blank_bits: both functions agree on random bytes") {
  testing::Random random(5);
  for (int round = 0; round < 20000; ++round) {
    std::array<char, kBlankBits + 3> bytes;
    for (char& byte : bytes) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 40));
    const std::size_t shift = testing::below(random, 4);
    REQUIRE(blank_bits(bytes.data() + shift) == blank_bits_one_by_one(bytes.data() + shift));
  }
}

TEST_CASE("WordSplitter: words are those of the naive splitter") {
  testing::Random random(6);
  const std::vector<std::string> kinds = {std::string("a \0b", 4), " a", "abcdefg ",
                                          "\t\r\n x\xC2\xA0", std::string("\xFF\x00\x85 ", 4)};
  for (std::size_t size = 0; size < 400; ++size) {
    for (const std::string& letters : kinds) {
      std::string text;
      while (text.size() < size) text += letters[testing::below(random, letters.size())];
      CAPTURE(text);
      const auto expected = naive_words(text, Blanks::kAscii);
      REQUIRE(split(text) == expected);
      REQUIRE(count_word_starts(text, false) == static_cast<std::int64_t>(expected.size()));
      const bool continued = !text.empty() && !is_blank(text[0]);
      REQUIRE(count_word_starts(text, true) ==
              static_cast<std::int64_t>(expected.size()) - (continued ? 1 : 0));
    }
  }
}

void check_words(const std::string& text, Blanks blanks) {
  CAPTURE(text);
  const auto expected = naive_words(text, blanks);
  REQUIRE(split(text, blanks) == expected);
  const auto count = static_cast<std::int64_t>(expected.size());
  REQUIRE(count_word_starts(text, false, blanks) == count);
  const bool continued = !text.empty() && testing::naive_blank_at(text, 0, blanks) == 0;
  REQUIRE(count_word_starts(text, true, blanks) == count - (continued ? 1 : 0));
  bool blank_end = false;
  for (const std::string& blank : testing::naive_blanks(blanks)) {
    blank_end = blank_end || (text.size() >= blank.size() &&
                              text.compare(text.size() - blank.size(), blank.size(), blank) == 0);
  }
  REQUIRE(ends_with_blank(text, blanks) == blank_end);
}

TEST_CASE("unicode_blank_at: finds the documented blanks, and no other character") {
  const std::vector<std::string> all = testing::naive_blanks(Blanks::kUnicode);
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const bool ascii = c < 0x80 && is_blank(static_cast<char>(c));
    const bool blank = std::find(all.begin(), all.end(), text) != all.end();
    REQUIRE(blank_at(text, 0, Blanks::kUnicode) == (blank ? text.size() : 0));
    REQUIRE(blank_at(text, 0, Blanks::kAscii) == (ascii ? 1 : 0));
    REQUIRE(has_unicode_blank(text) == (blank && !ascii));
  }
}

TEST_CASE("WordSplitter: a blank of Unicode ends a word at every place in the 64 bytes") {
  for (const std::string& blank : testing::naive_blanks(Blanks::kUnicode)) {
    for (const char* letter : {"a", "\u00E9", "\u2019", "\u3042", "\u1681"}) {
      std::string before;
      while (before.size() < 3 * kBlankBits) {
        for (const Blanks blanks : {Blanks::kAscii, Blanks::kUnicode}) {
          check_words(before + blank, blanks);
          check_words(before + blank + letter, blanks);
          check_words(before + blank + blank + letter + std::string(100, 'x'), blanks);
        }
        before += letter;
      }
    }
  }
}

TEST_CASE("WordSplitter: words between blanks of Unicode are those of the naive splitter") {
  // The text has blanks, characters that begin with the same bytes, and blanks that are cut off.
  std::vector<std::string> parts = testing::naive_blanks(Blanks::kUnicode);
  for (const char* more :
       {"a", "word", "\u00A1", "\u0084", "\u1681", "\u200B", "\u2019", "\u2030", "\u2060", "\u3001",
        "\u3042", "\u4E00", "\xE2\x80", "\xE3", "\xC2", "\x80", "\xA0", "\x80\x80", "\U0001F600"}) {
    parts.emplace_back(more);
    parts.emplace_back(more);
  }
  testing::Random random(7);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = testing::random_text(random, parts, testing::below(random, 120));
    check_words(text, Blanks::kUnicode);
    check_words(text, Blanks::kAscii);
  }
}

TEST_CASE("WordSplitter: words longer than any batch, and nothing but blanks") {
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
