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
  if (text.size() % 4 != 0) return std::nullopt;
  std::string data;
  data.reserve(text.size() / 4 * 3);
  while (!text.empty()) {
    std::uint32_t bits = 0;
    std::size_t digits = 0;
    for (; digits < 4 && text[digits] != '='; ++digits) {
      const std::size_t value = kAlphabet.find(text[digits]);
      if (value == std::string_view::npos) return std::nullopt;
      bits |= static_cast<std::uint32_t>(value) << (18 - 6 * digits);
    }
    const std::string_view padding = text.substr(digits, 4 - digits);
    if (digits < 2 || (digits < 4 && text.size() > 4)) return std::nullopt;
    if (padding.find_first_not_of('=') != std::string_view::npos) return std::nullopt;
    if (digits < 4 && (bits & (0xFFFFFFu >> (8 * (digits - 1)))) != 0) return std::nullopt;
    for (std::size_t i = 0; i + 1 < digits; ++i) {
      data.push_back(static_cast<char>((bits >> (16 - 8 * i)) & 0xFF));
    }
    text.remove_prefix(4);
  }
  return data;
}

}  // namespace ql::text
