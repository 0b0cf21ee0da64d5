#include "text/piece_writer.h"

#include <utility>

#include "base/printable.h"

namespace ql::text {

PieceWriter::PieceWriter(const Vocabulary& vocabulary, EosRule eos, Sink sink)
    : vocabulary_(vocabulary), eos_(eos), sink_(std::move(sink)) {}

void PieceWriter::begin_document() {
  if (!line_empty_) sink_("\n");
  line_empty_ = true;
}

void PieceWriter::write(const TokenId* ids, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const bool ends = ends_line(ids[i]);
    if (!line_empty_) text += ' ';
    text += shown(ids[i]);
    if (ends) text += '\n';
    line_empty_ = ends;
  }
  sink_(text);
}

void PieceWriter::finish(const std::optional<shard::TextCounts>& /*counts*/) { begin_document(); }

std::string PieceWriter::shown(TokenId id) const {
  const std::string_view token = vocabulary_.token(id);
  if (vocabulary_.type() != TokenType::kByte || vocabulary_.is_special(id)) return escaped(token);
  return escaped(std::string(1, static_cast<char>(*parse_byte_token(token))));
}

bool PieceWriter::ends_line(TokenId id) const {
  // The rule "double" puts one <eos> before each line, too.
  if (id == vocabulary_.eos()) return eos_ != EosRule::kDouble || !line_empty_;
  if (vocabulary_.is_special(id)) return false;
  switch (vocabulary_.type()) {
    case TokenType::kWord:
      return false;
    case TokenType::kChar:
      return vocabulary_.token(id) == "\n";
    case TokenType::kSentencePiece:
      if (id == vocabulary_.model().line_feed()) return true;
      [[fallthrough]];
    case TokenType::kByte:
      return vocabulary_.token(id) == "<0x0A>";
    case TokenType::kPiece:
      break;
  }
  throw std::logic_error("a vocabulary that does not encode");
}

}  // namespace ql::text
