// Counts what a text consists of, block by block. Parts of a text may be counted apart.
#pragma once

#include <cstdint>
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

// All counters have these:
//   add()     takes a line or a piece of one. `begins`: it begins the line; `ended`: a line feed
//             follows.
//   merge()   adds the counts of another counter.
//   counts()  returns every distinct token with its count; words and characters in any order, the
//             256 bytes in their own.
class WordCounter {
 public:
  explicit WordCounter(Blanks blanks) : blanks_(blanks) {}
  void add(std::string_view line, bool begins, bool ended);
  void merge(const WordCounter& other);
  std::vector<TokenCount> counts() const;
  // kPadded when every line so far has this form.
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

}  // namespace ql::text
