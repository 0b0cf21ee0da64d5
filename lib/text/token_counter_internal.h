// Counts what a text consists of, block by block. Parts of a text may be counted apart: merge()
// adds the counts of another counter of the same kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_table.h"
#include "text/vocabulary.h"

namespace ql::text {

struct TokenCount {
  std::string token;  // as VocabularyContent writes it
  std::int64_t count = 0;
};

class TokenCounter {
 public:
  virtual ~TokenCounter() = default;
  // `line` is a line or a piece of one; `begins`: it begins the line, `ended`: a line feed follows.
  virtual void add(std::string_view line, bool begins, bool ended) = 0;
  // Every distinct token with its count, in any order.
  virtual std::vector<TokenCount> counts() const = 0;
};

class WordCounter : public TokenCounter {
 public:
  void add(std::string_view line, bool begins, bool ended) override;
  void merge(const WordCounter& other);
  std::vector<TokenCount> counts() const override;
  // kPadded when every line so far has this form.
  LineStyle line_style() const;

 private:
  TokenTable words_;
  std::vector<std::int64_t> counts_;
  bool any_line_ = false, all_padded_ = true;
};

class CharCounter : public TokenCounter {
 public:
  CharCounter();
  void add(std::string_view line, bool begins, bool ended) override;
  void merge(const CharCounter& other);
  std::vector<TokenCount> counts() const override;

 private:
  std::vector<std::int64_t> counts_;  // by code point
};

class ByteCounter : public TokenCounter {
 public:
  ByteCounter() : counts_(256) {}
  void add(std::string_view line, bool begins, bool ended) override;
  void merge(const ByteCounter& other);
  // All 256 in their own order.
  std::vector<TokenCount> counts() const override;

 private:
  std::vector<std::int64_t> counts_;
};

}  // namespace ql::text
