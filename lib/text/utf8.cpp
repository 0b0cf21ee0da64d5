#include "text/utf8_internal.h"

#include <algorithm>
#include <cstring>

namespace ql::text {
namespace {

// What a lead byte asks for: the whole length (0: not a lead byte) and the range of the second
// byte, which is where overlong forms, surrogates and too large values are cut off.
struct Lead {
  std::size_t length;
  unsigned char second_low, second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

unsigned char byte_at(std::string_view text, std::size_t position) {
  return static_cast<unsigned char>(text[position]);
}

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// How many bytes from `position` on agree with the sequence that the lead byte announces.
std::size_t matching_bytes(std::string_view text, std::size_t position, const Lead& lead) {
  const std::size_t end = std::min(text.size(), position + lead.length);
  std::size_t next = position + 1;
  if (next < end &&
      (byte_at(text, next) < lead.second_low || byte_at(text, next) > lead.second_high))
    return 1;
  while (next < end && is_continuation(byte_at(text, next))) ++next;
  return next - position;
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
  const unsigned char first = byte_at(text, position);
  const Lead lead = lead_of(first);
  if (lead.length == 1) return {first, 1, true};
  if (lead.length == 0) return {kReplacement, 1, false};
  const std::size_t matching = matching_bytes(text, position, lead);
  if (matching < lead.length) return {kReplacement, matching, false};
  char32_t value = first & (0x7Fu >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i)
    value = (value << 6) | (byte_at(text, position + i) & 0x3Fu);
  return {value, lead.length, true};
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
  return count + std::count_if(text.begin(), text.end(), [](char c) {
           return !is_continuation(static_cast<unsigned char>(c));
         });
}

std::size_t incomplete_suffix(std::string_view text) {
  const std::size_t longest = std::min<std::size_t>(3, text.size());
  for (std::size_t size = 1; size <= longest; ++size) {
    const std::size_t position = text.size() - size;
    if (is_continuation(byte_at(text, position))) continue;
    const Lead lead = lead_of(byte_at(text, position));
    return lead.length > size && matching_bytes(text, position, lead) == size ? size : 0;
  }
  return 0;
}

void append_utf8(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | (c >> 6));
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | (c >> 12));
    add(0x80 | ((c >> 6) & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | (c >> 18));
    add(0x80 | ((c >> 12) & 0x3F));
    add(0x80 | ((c >> 6) & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

}  // namespace ql::text
