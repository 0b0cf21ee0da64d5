// Counts the tokens of a text, and the bytes, characters, words and lines of the text that tokens
// stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shard/token_stream.h"
#include "text/decoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// A counter takes a text line by line. Parts of a text may be counted separately and merged.

struct TokenCount {
  std::string token;  // as VocabularyContent writes it
  std::int64_t count = 0;
};

// All counters have these functions:
//   add()     counts a line or a part of a line. `begins` is true when the part
//             begins its line, `ended` when a line feed follows.
//   merge()   adds the counts of another counter.
//   counts()  returns every distinct token with its count, in any order; ByteCounter returns all
//             256 bytes, in the order of their values.
class WordCounter {
 public:
  explicit WordCounter(Blanks blanks) : blanks_(blanks) {}
  void add(std::string_view line, bool begins, bool ended);
  void merge(const WordCounter& other);
  std::vector<TokenCount> counts() const;
  // Returns kPadded when there was a line and all lines were padded.
  LineStyle line_style() const;

 private:
  Blanks blanks_;
  TokenTable words_;
  std::vector<std::int64_t> counts_;
  bool any_line_ = false, all_padded_ = true;
};

class CharCounter {
 public:
  CharCounter();
  void add(std::string_view line, bool begins, bool ended);
  void merge(const CharCounter& other);
  std::vector<TokenCount> counts() const;

 private:
  std::vector<std::int64_t> counts_;  // by code point
};

class ByteCounter {
 public:
  ByteCounter() : counts_(256) {}
  void add(std::string_view line, bool begins, bool ended);
  void merge(const ByteCounter& other);
  std::vector<TokenCount> counts() const;

 private:
  std::vector<std::int64_t> counts_;
};

// Passes tokens on, and counts the bytes, characters, words and lines of the text into which
// Decoder turns them. Decoder writes a line feed for each <eos>, and puts spaces where the
// vocabulary's LineStyle has them. finish() passes the counts on. TextCounts::unknown is the number
// of <unk> tokens.
class CountedTokens : public shard::TokenSink {
 public:
  // Keeps references to both arguments.
  CountedTokens(const Vocabulary& vocabulary, shard::TokenSink& sink);

  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  void flush() override { sink_.flush(); }
  // Ignores `given` and passes on the counts made here.
  void finish(const std::optional<shard::TextCounts>& given) override;
  const shard::TextCounts& counts() const { return counts_; }  // complete after finish()

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
