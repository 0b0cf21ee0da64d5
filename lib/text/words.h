// Splits text into words at whitespace, and lower-cases text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace ql::text {

// Words are separated by whitespace characters, here called blanks. A vocabulary states which
// characters are blanks.

enum class Blanks {
  kAscii,  // space, tab, line feed, vertical tab, form feed, carriage return
  // The blanks of kAscii, and U+001C to U+001F, U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028,
  // U+2029, U+202F, U+205F and U+3000: the characters that Python's str.split() splits at.
  kUnicode,
};
constexpr auto names_of(Blanks) { return std::array{"ascii", "unicode"}; }

// These functions return the length in bytes of the blank that begins at text[position], or 0 for
// another character. `position` must be less than text.size(). unicode_blank_at() finds only blanks
// of kUnicode that are not blanks of kAscii.
std::size_t unicode_blank_at(std::string_view text, std::size_t position);
inline std::size_t blank_at(std::string_view text, std::size_t position, Blanks blanks) {
  if (is_blank(text[position])) return 1;
  return blanks == Blanks::kUnicode ? unicode_blank_at(text, position) : 0;
}
// Returns true when the text ends with a blank, and false for an empty text.
bool ends_with_blank(std::string_view text, Blanks blanks);
// Returns true when the text has a blank of kUnicode that is not a blank of kAscii.
bool has_unicode_blank(std::string_view text);

// Returns which of 64 bytes are blanks of kAscii: bit i is 1 when bytes[i] is a blank.
constexpr std::size_t kBlankBits = 64;
std::uint64_t blank_bits(const char* bytes);
// Returns the result of blank_bits(), but looks at one byte at a time: for processors without
// vector instructions, and as a reference in tests.
std::uint64_t blank_bits_one_by_one(const char* bytes);

// Refers to a word inside a text. It has no initializers, so an array of words costs nothing before
// it is filled.
struct Word {
  const char* data;
  std::size_t size;
  std::string_view view() const { return {data, size}; }
};

// Splits a text into words, many per call: the blanks in 64 bytes are found at once, and the caller
// can look up many words together.
class WordSplitter {
 public:
  static constexpr std::size_t kMostWords = 128;
  explicit WordSplitter(std::string_view text, Blanks blanks = Blanks::kAscii)
      : text_(text), blanks_(blanks) {}
  // Sets words[0], words[1] ... to the next words and returns their number, at most kMostWords. The
  // number is 0 only at the text's end. The words point into the text.
  std::size_t next(Word* words);

 private:
  std::string_view text_;
  Blanks blanks_;
  std::size_t position_ = 0;  // the text before this offset has been split
  std::size_t begin_ = 0;     // where the word that continues at position_ begins
  bool inside_word_ = false;
};

// Returns how many words begin in `text`. `inside_word` is true when the byte before `text` belongs
// to a word.
std::int64_t count_word_starts(std::string_view text, bool inside_word,
                               Blanks blanks = Blanks::kAscii);

// Lower case follows the Unicode rules (ICU, root locale, full mapping): a final sigma is
// recognized, and U+0130 becomes two code points.

// `text` is valid UTF-8 of at most 1 GiB. The mapping of a letter never depends on text beyond a
// blank or a line end, so a text may be cut at blanks and line ends.
std::string lowercase(std::string_view text);

}  // namespace ql::text
