#include "text/base64_internal.h"

#include <algorithm>
#include <cstdint>

namespace ql::text {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::uint32_t byte_at(std::string_view data, std::size_t position) {
  return position < data.size() ? static_cast<unsigned char>(data[position]) : 0;
}

}  // namespace

std::string base64_encode(std::string_view data) {
  std::string text;
  text.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < data.size(); i += 3) {
    const std::uint32_t bits =
        byte_at(data, i) << 16 | byte_at(data, i + 1) << 8 | byte_at(data, i + 2);
    const std::size_t digits = std::min<std::size_t>(3, data.size() - i) + 1;
    for (std::size_t digit = 0; digit < 4; ++digit) {
      text.push_back(digit < digits ? kAlphabet[(bits >> (18 - 6 * digit)) & 63] : '=');
    }
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  std::string data;
  data.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int unused = 0;  // of the bits
  for (const char digit : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<std::uint32_t>(kAlphabet.find(digit) & 63);
    unused += 6;
    if (unused < 8) continue;
    unused -= 8;
    data.push_back(static_cast<char>((bits >> unused) & 0xFF));
  }
  // Letters that are no digits, wrong padding and bits that are left over come to light here.
  if (base64_encode(data) != text) return std::nullopt;
  return data;
}

}  // namespace ql::text
