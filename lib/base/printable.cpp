#include "base/printable.h"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace ql {

namespace {

// The characters with an escape of one letter, and their letters.
constexpr std::string_view kNamed = "\t\n\r\\", kNames = "tnr\\";

// False for characters that a reader cannot see, or that nobody has agreed upon. Combining marks
// have ink, and so have the few format characters that enclose numbers.
bool has_ink(char32_t c) {
  constexpr std::uint32_t kNoInk = U_GC_Z_MASK | U_GC_C_MASK;
  constexpr char32_t kEmptyBraille = 0x2800;
  const auto code = static_cast<UChar32>(c);
  if (c > ' ' && c < 0x7F) return true;
  if (u_hasBinaryProperty(code, UCHAR_PREPENDED_CONCATENATION_MARK)) return true;
  return (U_GET_GC_MASK(code) & kNoInk) == 0 && c != kEmptyBraille &&
         !u_hasBinaryProperty(code, UCHAR_DEFAULT_IGNORABLE_CODE_POINT);
}

// Returns the length in bytes of the control character at `i`, 0 when there is another one.
std::size_t control_at(std::string_view text, std::size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
  if (byte < ' ' || byte == 0x7F) return 1;
  return byte == 0xC2 && next >= 0x80 && next < 0xA0 ? 2 : 0;
}

std::string without_controls(std::string text, std::string_view kept) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t length = control_at(text, i);
    if (length > 0 && kept.find(text[i]) == std::string_view::npos) text.replace(i, length, "?");
  }
  return text;
}

}  // namespace

std::string printable(std::string text) { return without_controls(std::move(text), ""); }

std::string printable_lines(std::string text) { return without_controls(std::move(text), "\n\t"); }

std::string escaped(std::string_view text, Among among) {
  std::string result;
  for (std::size_t i = 0, length = 0; i < text.size(); i += length) {
    const std::size_t name = kNamed.find(text[i]);
    const CodePoint point = code_point_at(text, i);
    length = point.length;
    const std::string_view character = text.substr(i, length);
    if (name != std::string_view::npos) {
      result += {'\\', kNames[name]};
    } else if (point.valid && (among == Among::kLines || has_ink(point.value) ||
                               (among == Among::kQuotes && text[i] == ' '))) {
      result += character;
    } else {
      for (const char byte : character) {
        result += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
      }
    }
  }
  return result;
}

std::optional<std::string> unescaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (const std::size_t name = kNames.find(text[i]); name != std::string_view::npos) {
      result += kNamed[name];
      continue;
    }
    if (text[i] != 'x' || text.size() - i < 3) return std::nullopt;
    const std::size_t high = kDigits.find(text[++i]), low = kDigits.find(text[++i]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
  }
  return result;
}

}  // namespace ql
