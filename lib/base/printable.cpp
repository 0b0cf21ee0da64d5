#include "base/printable.h"

#include <cstddef>
#include <string_view>
#include <utility>

namespace ql {

namespace {

std::string without_controls(std::string text, std::string_view kept) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if ((byte < ' ' || byte == 0x7F) && kept.find(text[i]) == std::string_view::npos) {
      text[i] = '?';
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      text.replace(i, 2, "?");
    }
  }
  return text;
}

}  // namespace

std::string printable(std::string text) { return without_controls(std::move(text), ""); }

std::string printable_lines(std::string text) { return without_controls(std::move(text), "\n\t"); }

}  // namespace ql
