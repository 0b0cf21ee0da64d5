// Tokens as text that people read: one line of it for each line that was encoded.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "shard/token_sink.h"
#include "text/encoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// Writes the tokens of a line with one blank between them. A line ends behind the token of its line
// end, which is <eos> or a line feed, and where a document ends. A byte is shown as the character
// that it is, other tokens as the vocabulary's file has them, all by escaped() of base/printable.h.
class PieceWriter : public shard::TokenSink {
 public:
  using Sink = std::function<void(std::string_view text)>;
  // Keeps a reference to the vocabulary. `eos` is the rule of encoding.
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

}  // namespace ql::text
