// Token ids back to text.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shard/token_sink.h"
#include "text/encoder.h"
#include "text/vocabulary.h"

namespace ql::text {

struct DecodeOptions {
  EosRule eos = EosRule::kLine;              // as in encoding; kNone is the same as kLine here
  LineStyle line_style = LineStyle::kPlain;  // words only
};

// Streams: needs no more than the ids of one call. Words: one blank between words, a line feed for
// each <eos>, and one where a document or the text ends inside a line. Other types: exactly the
// text of the tokens; <unk> becomes U+FFFD, and blanks that a SentencePiece model puts before each
// line are taken away again, or those that a list of pieces has before each document.
class Decoder : public shard::TokenSink {
 public:
  using Sink = std::function<void(std::string_view text)>;
  // Keeps a reference to the vocabulary.
  Decoder(const Vocabulary& vocabulary, DecodeOptions options, Sink sink);

  void begin_document() override;
  // Throws Error for an id that the vocabulary has not got.
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
  std::vector<std::string> texts_;  // of the tokens; empty for words, which the vocabulary has
  std::string text_;
  LeadingBlanks leading_blanks_;
  // A line feed in a token ends a line, and so does <eos>, as far as leading blanks are concerned.
  bool feed_ends_line_, eos_ends_line_;
  bool line_empty_ = true;  // nothing on this line yet
  bool line_open_ = false;  // kDouble: the <eos> before the line was there
};

}  // namespace ql::text
