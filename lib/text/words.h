// Words are what stands between blanks: the six ASCII characters blank, tab, line feed, vertical
// tab, form feed and carriage return. Other Unicode blanks (U+00A0 ...) belong to words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ql::text {

inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline bool is_all_blank(std::string_view text) {
  for (const char c : text) {
    if (!is_blank(c)) return false;
  }
  return true;
}

// Tells which of 64 bytes are blanks: bit i is 1 when bytes[i] is one.
constexpr std::size_t kBlankBits = 64;
std::uint64_t blank_bits(const char* bytes);
// The same byte by byte: what processors without vectors use, and the other one is tested against.
std::uint64_t blank_bits_one_by_one(const char* bytes);

// A word where it stands in a text; arrays of it cost nothing before they are filled.
struct Word {
  const char* data;
  std::size_t size;
  std::string_view view() const { return {data, size}; }
};

// The words of a text, many at a time: the places of all blanks in 64 bytes come at once, and what
// is done with one word need not wait for the end of the one before.
class WordSplitter {
 public:
  static constexpr std::size_t kMostWords = 128;
  explicit WordSplitter(std::string_view text) : text_(text) {}
  // Sets words[0], words[1] ... to the next words and returns how many there are, at most
  // kMostWords; 0 only at the text's end. They point into the text.
  std::size_t next(Word* words);

 private:
  std::string_view text_;
  std::size_t position_ = 0;  // what stands before has been split
  std::size_t begin_ = 0;     // of the word that is not at its end there
  bool inside_word_ = false;
};

// Returns how many words begin in `text`. `inside_word`: a word's beginning stands right before it.
std::int64_t count_word_starts(std::string_view text, bool inside_word);

}  // namespace ql::text
