// Turns token ids back into text: the original text, or tokens that a person can read.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shard/token_stream.h"
#include "text/encoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// Writes tokens, separated by spaces within a line. A line ends after a token that stands for a
// line end (<eos> or a line feed), and at the end of a document. Tokens of type byte are written as
// the bytes that they stand for, other tokens as in the vocabulary's file. Both go through
// escaped() of base/strings.h.
class PieceWriter : public shard::TokenSink {
 public:
  using Sink = std::function<void(std::string_view text)>;
  // Keeps a reference to the vocabulary. `eos` is the rule that encoding used.
  PieceWriter(const Vocabulary& vocabulary, EosRule eos, Sink sink);

  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  void finish(const std::optional<shard::TextCounts>& counts) override;

 private:
  std::string shown(TokenId id) const;
  bool ends_line(TokenId id) const;

  const Vocabulary& vocabulary_;
  EosRule eos_;
  Sink sink_;
  bool line_empty_ = true;  // no token on this line yet
};

struct DecodeOptions {
  EosRule eos = EosRule::kLine;  // the rule that encoding used; kNone decodes like kLine
  LineStyle line_style = LineStyle::kPlain;  // words only
};

// Decodes a stream. The sink gets the text in pieces of at most about 64 KiB, so memory does not
// grow. For words it writes spaces as the line style requires, a line feed for each <eos> that ends
// a line, and a line feed where a document or the text ends inside a line. For other types it
// writes the text that the tokens stand for, a line feed for each <eos> that ends a line, and
// U+FFFD for <unk>. It removes the spaces that encoding adds: before each line for a SentencePiece
// model, before each document for imported pieces.
class Decoder : public shard::TokenSink {
 public:
  using Sink = std::function<void(std::string_view text)>;
  // Keeps a reference to the vocabulary.
  Decoder(const Vocabulary& vocabulary, DecodeOptions options, Sink sink);

  void begin_document() override;
  // Throws Error for an id that the vocabulary does not have.
  void write(const TokenId* ids, std::size_t count) override;
  void finish(const std::optional<shard::TextCounts>& counts) override;

 private:
  void add_text(std::string_view text);
  void add_word(std::string_view word);
  void add_eos();
  void end_line();
  void pass_on();

  const Vocabulary& vocabulary_;
  DecodeOptions options_;
  Sink sink_;
  // The text of each token, by id. Empty for words: the vocabulary has their text.
  std::vector<std::string> texts_;
  std::string text_;
  LeadingBlanks leading_blanks_;
  // These are true when the text after a line feed at the end of a token (feed_ends_line_), or
  // after <eos> (eos_ends_line_), may begin with spaces that encoding added.
  bool feed_ends_line_, eos_ends_line_;
  bool line_empty_ = true;  // the line or document has no text yet
  bool line_open_ = false;  // kDouble: the line has begun, so the next <eos> ends it
};

}  // namespace ql::text
