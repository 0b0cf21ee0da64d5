#include "base/printable.h"

#include <doctest/doctest.h>

#include "unit/text_support.h"

namespace ql {

TEST_CASE("an escaped word has no blank, and its text comes back") {
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

TEST_CASE("a backslash that begins no escape is found") {
  for (const char* wrong : {"\\", "a\\", "\\q", "\\x", "\\x4", "\\x4g", "\\xc3", "\\X41"}) {
    CHECK_MESSAGE(!unescaped(wrong), wrong);
  }
}

}  // namespace ql
