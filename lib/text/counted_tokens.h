// Counts the text behind tokens that come without it.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "shard/token_sink.h"
#include "text/decoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// Passes everything on, and at the end the counts of the text that Decoder makes of it: a line feed
// for each <eos>, in the style of the vocabulary. TextCounts::unknown is the number of <unk>.
class CountedTokens : public shard::TokenSink {
 public:
  // Keeps references to both.
  CountedTokens(const Vocabulary& vocabulary, shard::TokenSink& sink);

  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  void flush() override { sink_.flush(); }
  // Ignores `given`: the counts made here take its place.
  void finish(const std::optional<shard::TextCounts>& given) override;

 private:
  void count(std::string_view text);

  std::optional<TokenId> unk_;
  Blanks blanks_;
  shard::TokenSink& sink_;
  Decoder decoder_;
  shard::TextCounts counts_;
  bool inside_word_ = false, inside_line_ = false;
};

}  // namespace ql::text
