// Before text is split into tokens, invalid UTF-8 is refused or replaced.
#pragma once

#include "text/text_reader.h"
#include "text/vocabulary.h"

namespace ql::text {

enum class InvalidText {
  kError,    // FormatError with file, line and byte offset
  kReplace,  // one U+FFFD for each invalid sequence
};
constexpr auto names_of(InvalidText) { return std::array{"error", "replace"}; }

// Returns how lines may be cut so that the tokens of this kind of vocabulary do not depend on it.
LineCut line_cut(TokenType type, bool lowercase, Blanks blanks);

// Makes block.text valid UTF-8. Bytes take any text: nothing is done for TokenType::kByte.
void validate_text(TextBlock& block, TokenType type, InvalidText invalid);

// Takes the byte order mark away that may begin a file. Only words have it taken away: other types
// give the text back byte by byte.
void remove_mark(TextBlock& block, TokenType type);

}  // namespace ql::text
