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

// Writes the tokens of a line with one blank between them. A line ends after the token of its line
// end, which is <eos> or a line feed, and where a document ends. A byte is shown as its ASCII
// character, other tokens as in the vocabulary's file, all by escaped() of base/strings.h.
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
  EosRule eos = EosRule::kLine;              // the rule of encoding; kNone decodes like kLine
  LineStyle line_style = LineStyle::kPlain;  // words only
};

// Decodes a stream; memory does not grow beyond the ids of one call. For words it writes one blank
// between words, a line feed for each <eos>, and one where a document or the text ends inside a
// line. For other types it writes exactly the text of the tokens; <unk> becomes U+FFFD. It removes
// the blanks that a SentencePiece model adds before each line, or a list of pieces before each
// document.
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
  std::vector<std::string> texts_;  // by id; empty for words, whose texts the vocabulary has
  std::string text_;
  LeadingBlanks leading_blanks_;
  // These are true when a line feed in a token, or <eos>, ends a line whose successor may get
  // leading blanks.
  bool feed_ends_line_, eos_ends_line_;
  bool line_empty_ = true;  // nothing on this line yet
  bool line_open_ = false;  // kDouble: the <eos> before the line was read
};

}  // namespace ql::text
