// Tests UTF-8 against the Unicode standard.

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string>

#include "base/strings.h"
#include "unit/text_support.h"

namespace ql {
namespace {

// Follows the definition: the bits of the bytes first, then the forbidden values.
bool is_well_formed(const std::string& bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const std::size_t n = bytes.size();
  if (n == 1) return byte(0) < 0x80;
  if (n < 2 || n > 4) return false;
  const std::array<unsigned, 5> lead = {0, 0, 0xC0, 0xE0, 0xF0};
  const std::array<unsigned, 5> mask = {0, 0, 0xE0, 0xF0, 0xF8};
  const std::array<unsigned, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  if ((byte(0) & mask[n]) != lead[n]) return false;
  unsigned value = byte(0) & ~mask[n] & 0xFFu;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return false;
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  return value >= smallest[n] && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
}

std::string bytes_of(std::initializer_list<unsigned> bytes) {
  std::string text;
  for (const unsigned byte : bytes) text.push_back(static_cast<char>(byte));
  return text;
}

// A complete sequence is accepted exactly when the definition accepts it.
void check_sequence(const std::string& bytes, long& wrong) {
  const CodePoint point = code_point_at(bytes, 0);
  const bool accepted = point.valid && point.length == bytes.size();
  if (accepted != is_well_formed(bytes)) ++wrong;
}

const std::set<std::string>& proper_beginnings() {
  static const std::set<std::string> kAll = [] {
    std::set<std::string> all;
    for (char32_t c = 0x80; c <= kLastCodePoint; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string text;
      append_utf8(text, c);
      // Consecutive code points have the same beginnings.
      if ((c & 0x3F) != 0) continue;
      for (std::size_t size = 1; size < text.size(); ++size) all.insert(text.substr(0, size));
    }
    return all;
  }();
  return kAll;
}

TEST_CASE("append_utf8: code_point_at() reads every code point back") {
  long wrong = 0;
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const CodePoint point = code_point_at(text, 0);
    if (!point.valid || point.value != c || point.length != text.size()) ++wrong;
    if (!is_well_formed(text)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("code_point_at: sequences are valid exactly by the definition") {
  const std::array<unsigned, 10> edges = {0x00, 0x41, 0x7F, 0x80, 0x8F,
                                          0x90, 0x9F, 0xA0, 0xBF, 0xC0};
  long wrong = 0;
  for (unsigned a = 0; a < 256; ++a) {
    check_sequence(bytes_of({a}), wrong);
    for (unsigned b = 0; b < 256; ++b) {
      check_sequence(bytes_of({a, b}), wrong);
      for (const unsigned c : edges) {
        check_sequence(bytes_of({a, b, c}), wrong);
        for (const unsigned d : edges) check_sequence(bytes_of({a, b, c, d}), wrong);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("find_invalid_utf8: the first invalid byte is found after text of any length") {
  for (std::size_t before = 0; before < 40; ++before) {
    for (const std::string& bad : {bytes_of({0xFF}), bytes_of({0xC3}), bytes_of({0xE2, 0x96}),
                                   bytes_of({0xED, 0xA0, 0x80}), bytes_of({0xC0, 0xAF})}) {
      const std::string text = std::string(before, 'x') + bad;
      CHECK(find_invalid_utf8(text) == before);
      CHECK(find_invalid_utf8(text + "yyyyyyyyyyyy") == before);
      CHECK(find_invalid_utf8(std::string(before, 'x') + "é😀") == std::string::npos);
    }
  }
  CHECK(find_invalid_utf8("") == std::string::npos);
}

TEST_CASE(
    "replace_invalid_utf8: replacement follows the examples of the Unicode standard, tables 3-8 to "
    "3-11") {
  const std::string r(kReplacementUtf8);
  CHECK(replace_invalid_utf8(bytes_of({0xC0, 0xAF, 0xE0, 0x80, 0xBF, 0xF0, 0x81, 0x82, 0x41})) ==
        r + r + r + r + r + r + r + r + "A");
  CHECK(replace_invalid_utf8(bytes_of({0xED, 0xA0, 0x80, 0xED, 0xBF, 0xBF, 0xED, 0xAF, 0x41})) ==
        r + r + r + r + r + r + r + r + "A");
  CHECK(replace_invalid_utf8(bytes_of({0xF4, 0x91, 0x92, 0x93, 0xFF, 0x41, 0x80, 0xBF, 0x42})) ==
        r + r + r + r + r + "A" + r + r + "B");
  CHECK(replace_invalid_utf8(bytes_of({0xE1, 0x80, 0xE2, 0xF0, 0x91, 0x92, 0xF1, 0xBF, 0x41})) ==
        r + r + r + r + "A");
  CHECK(replace_invalid_utf8("") == "");
  CHECK(replace_invalid_utf8("héllo") == "héllo");
}

TEST_CASE("replace_invalid_utf8: random bytes become valid, valid text does not change") {
  text::testing::Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::size_t i = text::testing::below(random, 30); i > 0; --i) {
      bytes.push_back(static_cast<char>(text::testing::below(random, 2) ? 'a' : random()));
    }
    const std::string clean = replace_invalid_utf8(bytes);
    CHECK(find_invalid_utf8(clean) == std::string::npos);
    CHECK((clean == bytes) == (find_invalid_utf8(bytes) == std::string::npos));
    CHECK(replace_invalid_utf8(clean) == clean);
  }
}

TEST_CASE("count_code_points: valid texts, and long ones") {
  CHECK(count_code_points("") == 0);
  CHECK(count_code_points("aé日😀") == 4);
  text::testing::Random random(9);
  for (std::size_t size = 0; size < 5000; size += 1 + size / 20) {
    std::string bytes;
    std::int64_t expected = 0;
    while (bytes.size() < size) {
      bytes.push_back(static_cast<char>(random()));
      expected += (bytes.back() & 0xC0) == 0x80 ? 0 : 1;
    }
    REQUIRE(count_code_points(bytes) == expected);
  }
  // The text is long enough to overflow a counter of one byte for each of eight places.
  CHECK(count_code_points(std::string(100000, 'a')) == 100000);
}

TEST_CASE("incomplete_suffix: the longest end that more input could complete") {
  const std::array<unsigned, 14> bytes = {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                          0xC1, 0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4};
  long wrong = 0;
  for (const unsigned a : bytes) {
    for (const unsigned b : bytes) {
      for (const unsigned c : bytes) {
        for (const unsigned d : bytes) {
          const std::string text = bytes_of({a, b, c, d});
          std::size_t expected = 0;
          for (std::size_t size = 1; size <= 3; ++size) {
            if (proper_beginnings().count(text.substr(4 - size)) != 0) expected = size;
          }
          if (incomplete_suffix(text) != expected) ++wrong;
        }
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(incomplete_suffix("") == 0);
  CHECK(incomplete_suffix(bytes_of({0xF0})) == 1);
}

}  // namespace
}  // namespace ql
