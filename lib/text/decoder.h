// Turns token ids into the original text, or into tokens that a person can read.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shard/token_stream.h"
#include "text/added_blanks.h"
#include "text/encoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// Writes tokens, separated by spaces within a line. A line ends after a token that stands for a
// line end (a line feed, or an <eos> that ends a line), and at the end of a document. Tokens of
// type byte are written as the bytes that they stand for, other tokens as in the vocabulary's file.
// escaped() of base/strings.h escapes all of them.
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

// Decodes a stream. The sink gets the text in parts of at most about 64 KiB, so memory does not
// grow. An <eos> that ends a line becomes a line feed. For words, a space separates two words, and
// with LineStyle::kPadded spaces also begin and end the line. If a document of words ends inside a
// line, a line feed follows. For other types, <unk> becomes U+FFFD, and the spaces that encoding
// adds are removed: before each line for a SentencePiece model, and before each document for
// imported pieces.
class Decoder : public shard::TokenSink {
 public:
  using Sink = std::function<void(std::string_view text)>;
  Decoder(const Vocabulary& vocabulary, DecodeOptions options, Sink sink)
      : Decoder(vocabulary.decoded_tokens(), options, std::move(sink)) {}
  // For programs that must not load SentencePiece. They may not call the other constructor.
  Decoder(DecodedTokens tokens, DecodeOptions options, Sink sink);

  void begin_document() override;
  // Throws Error for an id that the vocabulary does not have.
  void write(const TokenId* ids, std::size_t count) override;
  // Writes only the first `bytes` of the token's text in DecodedTokens. Not for words.
  void write_beginning(TokenId id, std::size_t bytes);
  void finish(const std::optional<shard::TextCounts>& counts) override;

 private:
  void add_text(std::string_view text);
  void add_word(std::string_view word);
  void add_eos();
  void end_line();
  void pass_on();

  DecodedTokens tokens_;
  DecodeOptions options_;
  Sink sink_;
  std::string text_;
  BlankRemover blanks_;     // not for words
  bool line_empty_ = true;  // the line has no word yet; for words only
  // Only EosRule::kDouble reads this. The next <eos> ends a line if true, and begins one if false.
  bool line_open_ = false;
};

}  // namespace ql::text
