#include "base/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace ql {

namespace {

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

std::string escaped(std::string_view text) {
  constexpr std::string_view kNamed = "\t\n\r\\", kNames = "tnr\\";
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t name = kNamed.find(text[i]);
    const std::size_t length = text[i] == ' ' ? 1 : control_at(text, i);
    if (name != std::string_view::npos) {
      result += '\\';
      result += kNames[name];
    } else if (length == 0) {
      result += text[i];
    } else {
      for (const char letter : text.substr(i, length)) {
        result += fmt::format("\\x{:02X}", static_cast<unsigned char>(letter));
      }
    }
    i += length == 0 ? 1 : length;
  }
  return result;
}

}  // namespace ql
