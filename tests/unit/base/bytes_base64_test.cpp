// Tests base64 against RFC 4648.

#include <doctest/doctest.h>

#include <string>

#include "base/bytes.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

TEST_CASE("base64_encode: the examples of RFC 4648, section 10") {
  const char* const pairs[][2] = {{"", ""},
                                  {"f", "Zg=="},
                                  {"fo", "Zm8="},
                                  {"foo", "Zm9v"},
                                  {"foob", "Zm9vYg=="},
                                  {"fooba", "Zm9vYmE="},
                                  {"foobar", "Zm9vYmFy"}};
  for (const auto& [data, text] : pairs) {
    CHECK(base64_encode(data) == text);
    CHECK(base64_decode(text) == std::string(data));
  }
}

TEST_CASE("base64_decode: any bytes survive") {
  testing::Random random(4);
  for (std::size_t size = 0; size < 300; ++size) {
    std::string data;
    for (std::size_t i = 0; i < size; ++i) data.push_back(static_cast<char>(random()));
    CHECK(base64_decode(base64_encode(data)) == data);
  }
}

TEST_CASE("base64_decode: only the encoder's output is accepted") {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Zm9=", "Zm9v\n",
                           "=g==", "Z===", "====", "Zm 9", "Zm9v====", "Zm-_"}) {
    CHECK(base64_decode(text) == std::nullopt);
  }
}

}  // namespace
}  // namespace ql::text
