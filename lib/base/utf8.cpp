#include "base/utf8.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ql {
namespace {

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

// The end of the ASCII bytes that begin at `position`, rounded down to whole words of 8.
std::size_t skip_ascii(std::string_view text, std::size_t position) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  while (text.size() - position >= sizeof(std::uint64_t)) {
    std::uint64_t bytes;
    std::memcpy(&bytes, text.data() + position, sizeof bytes);
    if ((bytes & kHighBits) != 0) break;
    position += sizeof bytes;
  }
  return position;
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t position) {
  std::size_t end = position;
  UChar32 value = 0;
  U8_NEXT(bytes_of(text), end, text.size(), value);
  const bool valid = value >= 0;
  return {valid ? static_cast<char32_t>(value) : kReplacement, end - position, valid};
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t position = skip_ascii(text, 0);
  while (position < text.size()) {
    const CodePoint point = code_point_at(text, position);
    if (!point.valid) return position;
    position += point.length;
    if (point.length == 1) position = skip_ascii(text, position);
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = std::min(find_invalid_utf8(text), text.size());
    clean.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    clean.append(kReplacementUtf8);
    text.remove_prefix(code_point_at(text, 0).length);
  }
  return clean;
}

std::int64_t count_code_points(std::string_view text) {
  // Eight bytes at a time, each with a count of its own, which must not exceed a byte.
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::size_t kMostWords = 255;
  std::int64_t count = 0;
  while (text.size() >= sizeof(std::uint64_t)) {
    const std::size_t words = std::min(text.size() / sizeof(std::uint64_t), kMostWords);
    std::uint64_t counts = 0;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t bytes;
      std::memcpy(&bytes, text.data() + i * sizeof bytes, sizeof bytes);
      // A byte continues a sequence when bit 7 is 1 and bit 6 is 0.
      counts += (~bytes >> 7 | bytes >> 6) & kOnes;
    }
    for (; counts > 0; counts >>= 8) count += static_cast<std::int64_t>(counts & 0xFF);
    text.remove_prefix(words * sizeof(std::uint64_t));
  }
  return count + std::count_if(text.begin(), text.end(), [](char c) { return !U8_IS_TRAIL(c); });
}

std::size_t incomplete_suffix(std::string_view text) {
  const auto size = static_cast<std::ptrdiff_t>(text.size());
  std::ptrdiff_t complete = size;
  U8_TRUNCATE_IF_INCOMPLETE(bytes_of(text), 0, complete);
  return static_cast<std::size_t>(size - complete);
}

void append_utf8(std::string& text, char32_t code_point) {
  std::array<char, U8_MAX_LENGTH> bytes{};
  std::size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, code_point);
  text.append(bytes.data(), size);
}

}  // namespace ql
