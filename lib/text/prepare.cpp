#include "text/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace ql::text {

LineCut line_cut(TokenType type, bool lowercase, Blanks blanks) {
  if (type == TokenType::kSentencePiece) return LineCut::kNever;
  if (type == TokenType::kWord && blanks == Blanks::kUnicode) return LineCut::kAtUnicodeBlank;
  if (type == TokenType::kWord || lowercase) return LineCut::kAtBlank;
  return type == TokenType::kByte ? LineCut::kAnywhere : LineCut::kAtCodePoint;
}

void validate_text(TextBlock& block, TokenType type, InvalidText invalid) {
  if (type == TokenType::kByte) return;
  const std::size_t bad = find_invalid_utf8(block.text);
  if (bad == std::string_view::npos) return;
  if (invalid == InvalidText::kReplace) {
    block.text = replace_invalid_utf8(block.text);
    return;
  }
  const auto line =
      block.place.line + std::count(block.text.begin(), block.text.begin() + bad, '\n');
  throw FormatError(fmt::format("{}: line {}", block.place.file, line),
                    fmt::format("invalid UTF-8: byte 0x{:02X} at offset {} of the file",
                                static_cast<unsigned char>(block.text[bad]),
                                block.place.offset + static_cast<std::int64_t>(bad)),
                    "convert the text with iconv, or give --invalid replace, or use --type byte");
}

void remove_mark(TextBlock& block, TokenType type) {
  if (type != TokenType::kWord || block.place.offset != 0 || !begins_with_mark(block.text)) return;
  block.text.erase(0, kByteOrderMark.size());
  block.place.offset += static_cast<std::int64_t>(kByteOrderMark.size());
}

}  // namespace ql::text
