// Tests escaped text, and strings that end a text.

#include <doctest/doctest.h>

#include "base/strings.h"
#include "unit/text_support.h"

namespace ql {

TEST_CASE("escaped: an escaped word has no blank, and its text comes back") {
  CHECK(escaped(" the\t\\\n\r") == "\\x20the\\t\\\\\\n\\r");
  CHECK(escaped("\xC2\x85 \x7F") == "\\xC2\\x85\\x20\\x7F");
  CHECK(escaped("caf\xC3\xA9 \xC3") == "caf\xC3\xA9\\x20\\xC3");
  CHECK(unescaped("\\x41\\xC3\\xA9 b") == "A\xC3\xA9 b");
  text::testing::Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (std::size_t i = text::testing::below(random, 12); i > 0; --i) {
      bytes.push_back(static_cast<char>(random()));
    }
    REQUIRE(unescaped(escaped(bytes)) == bytes);
  }
}

TEST_CASE("escaped: characters without ink are escaped among words and in quotes") {
  struct Row {
    const char* text;
    const char* words;
    const char* quotes;  // nullptr: the same as `words`
  };
  const Row rows[] = {
      {"a b", "a\\x20b", "a b"},
      {"10\u00A0km", "10\\xC2\\xA0km", nullptr},  // no-break space
      {"\u1680", "\\xE1\\x9A\\x80", nullptr},     // ogham space
      {"\u2003x", "\\xE2\\x80\\x83x", nullptr},   // em space
      {"\u202F\u205F", "\\xE2\\x80\\xAF\\xE2\\x81\\x9F", nullptr},
      {"\u3000", "\\xE3\\x80\\x80", nullptr},  // ideographic space
      {"\u2028", "\\xE2\\x80\\xA8", nullptr},  // line separator
      {"\u2029", "\\xE2\\x80\\xA9", nullptr},  // paragraph separator
      {"\x1B[1m", "\\x1B[1m", nullptr},
      {"\u0085", "\\xC2\\x85", nullptr},
      {"co\u00ADop", "co\\xC2\\xADop", nullptr},   // soft hyphen
      {"a\u200Bb", "a\\xE2\\x80\\x8Bb", nullptr},  // zero width space
      {"\u200D", "\\xE2\\x80\\x8D", nullptr},      // zero width joiner
      {"\u202E", "\\xE2\\x80\\xAE", nullptr},      // right-to-left override
      {"\u2060\u2064", "\\xE2\\x81\\xA0\\xE2\\x81\\xA4", nullptr},
      {"\uFEFFThe", "\\xEF\\xBB\\xBFThe", nullptr},        // byte order mark
      {"\u034F", "\\xCD\\x8F", nullptr},                   // combining grapheme joiner
      {"\u3164", "\\xE3\\x85\\xA4", nullptr},              // hangul filler
      {"\u2764\uFE0F", "\u2764\\xEF\\xB8\\x8F", nullptr},  // variation selector
      {"\u2800", "\\xE2\\xA0\\x80", nullptr},              // braille without dots
      {"\uE000", "\\xEE\\x80\\x80", nullptr},              // private use
      {"\uFFFF", "\\xEF\\xBF\\xBF", nullptr},              // noncharacter
      {"\U000E0041", "\\xF3\\xA0\\x81\\x81", nullptr},     // tag
      {"\xED\xA0\x80", "\\xED\\xA0\\x80", nullptr},        // surrogate, which is invalid UTF-8
      // These characters have ink.
      {"e\u0301", "e\u0301", nullptr},
      {"\u0915\u094D\u0937", "\u0915\u094D\u0937", nullptr},
      {"\u0E01\u0E34", "\u0E01\u0E34", nullptr},
      {"\u0600", "\u0600", nullptr},  // Arabic number sign: a visible format character
      {"\u2581the", "\u2581the", nullptr},
      {"\uFFFD\u2014\u00E9\u65E5\U0001F600", "\uFFFD\u2014\u00E9\u65E5\U0001F600", nullptr},
  };
  for (const Row& row : rows) {
    CAPTURE(row.words);
    CHECK(escaped(row.text) == row.words);
    CHECK(escaped(row.text, Among::kQuotes) == (row.quotes ? row.quotes : row.words));
    CHECK(unescaped(row.words) == row.text);
  }
}

TEST_CASE("escaped: the content of vocabularies keeps its escapes") {
  CHECK(escaped("a b\u00A0\u200B\uFEFF\x1B\t\\", Among::kLines) ==
        "a b\u00A0\u200B\uFEFF\x1B\\t\\\\");
}

TEST_CASE("unescaped: a backslash that begins no escape is found") {
  for (const char* wrong : {"\\", "a\\", "\\q", "\\x", "\\x4", "\\x4g", "\\xc3", "\\X41"}) {
    CHECK_MESSAGE(!unescaped(wrong), wrong);
  }
}

TEST_CASE("StopStrings: the first string is found in any parts, and nothing before it is held") {
  text::testing::Random random(5);
  const auto draw = [&](std::size_t most) {
    std::string text;
    for (std::size_t i = text::testing::below(random, most); i > 0; --i) {
      text.push_back(text::testing::below(random, 2) == 0 ? 'a' : 'b');
    }
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> strings{"a" + draw(4), "b" + draw(5)};
    const std::string text = draw(14);
    StopStrings stop(strings);
    std::string so_far;
    bool found = false;
    for (std::size_t i = 0; i < text.size() && !found; ++i) {
      so_far += text[i];
      stop.put(text.substr(i, 1));
      // The bytes are settled up to the first place at which a string may begin.
      std::size_t settled = so_far.size();
      for (const std::string& string : strings) {
        const std::size_t begin = so_far.find(string);
        found = found || begin != std::string::npos;
        settled = std::min(settled, begin);
      }
      for (std::size_t begin = 0; !found && begin < so_far.size(); ++begin) {
        for (const std::string& string : strings) {
          if (string.rfind(so_far.substr(begin), 0) == 0) settled = std::min(settled, begin);
        }
      }
      REQUIRE(stop.found() == found);
      REQUIRE(stop.settled() == settled);
    }
  }
  StopStrings at_once({". \n", "end"});
  at_once.put("the end. \n");
  CHECK(at_once.found());
  CHECK(at_once.settled() == 4);
}

}  // namespace ql
