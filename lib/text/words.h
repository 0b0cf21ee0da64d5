// Words are what stands between blanks. A vocabulary says which characters these are (Blanks).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ql::text {

enum class Blanks {
  kAscii,  // blank, tab, line feed, vertical tab, form feed, carriage return; all others are
           // letters
  // These, U+001C to U+001F, U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F,
  // U+205F and U+3000: the characters that Python's str.split() splits at.
  kUnicode,
};
constexpr auto names_of(Blanks) { return std::array{"ascii", "unicode"}; }

inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Returns the length in bytes of the blank that begins at text[position], 0 when none does;
// position < text.size(). The first function looks only for those that kAscii has not got.
std::size_t unicode_blank_at(std::string_view text, std::size_t position);
inline std::size_t blank_at(std::string_view text, std::size_t position, Blanks blanks) {
  if (is_blank(text[position])) return 1;
  return blanks == Blanks::kUnicode ? unicode_blank_at(text, position) : 0;
}
// True when the text ends with a blank; false for an empty one.
bool ends_with_blank(std::string_view text, Blanks blanks);
// True when the text has a blank of kUnicode that is not one of kAscii.
bool has_unicode_blank(std::string_view text);

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
  explicit WordSplitter(std::string_view text, Blanks blanks = Blanks::kAscii)
      : text_(text), blanks_(blanks) {}
  // Sets words[0], words[1] ... to the next words and returns how many there are, at most
  // kMostWords; 0 only at the text's end. They point into the text.
  std::size_t next(Word* words);

 private:
  std::string_view text_;
  Blanks blanks_;
  std::size_t position_ = 0;  // what stands before has been split
  std::size_t begin_ = 0;     // of the word that is not at its end there
  bool inside_word_ = false;
};

// Returns how many words begin in `text`. `inside_word`: a word's beginning stands right before it.
std::int64_t count_word_starts(std::string_view text, bool inside_word,
                               Blanks blanks = Blanks::kAscii);

}  // namespace ql::text
