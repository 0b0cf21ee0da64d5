// UTF-8 as the Unicode standard defines it (chapter 3, table 3-7): no overlong forms, no
// surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ql {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kReplacement = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";
// U+FEFF. At the beginning of a file it says how the file is encoded.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

inline bool begins_with_mark(std::string_view text) {
  return text.substr(0, kByteOrderMark.size()) == kByteOrderMark;
}

struct CodePoint {
  char32_t value;  // kReplacement when not valid
  std::size_t
      length;  // bytes taken, at least 1; of an invalid sequence its maximal valid beginning
  bool valid;
};

// The code point that begins at text[position]; position < text.size().
CodePoint code_point_at(std::string_view text, std::size_t position);

// The offset of the first byte that is no part of a well-formed sequence, npos when there is none.
std::size_t find_invalid_utf8(std::string_view text);

// Every invalid sequence becomes one U+FFFD: one for each maximal beginning of a well-formed
// sequence, as the Unicode standard recommends and browsers do.
std::string replace_invalid_utf8(std::string_view text);

// Bytes that do not continue a sequence: the number of code points when `text` is valid.
std::int64_t count_code_points(std::string_view text);

// Returns how many bytes at the end are the proper beginning of a well-formed sequence (0 to 3), so
// that more input could complete it.
std::size_t incomplete_suffix(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

}  // namespace ql
