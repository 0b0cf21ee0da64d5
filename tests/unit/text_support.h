// Makes random text, and has small helpers, for the tests of lib/text.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/decoder.h"
#include "text/vocabulary.h"
#include "text/words.h"
#include "unit/complaint.h"
#include "unit/scratch.h"

namespace ql::text::testing {

using Random = std::mt19937;

inline std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

// Returns `count` parts drawn from `parts`, with nothing between them.
inline std::string random_text(Random& random, const std::vector<std::string>& parts,
                               std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += parts[below(random, parts.size())];
  return text;
}

// Returns parts that all text types have to handle: blanks of all kinds, letters whose case is
// tricky, 1 to 4 bytes a letter, NUL, words that look like specials.
inline std::vector<std::string> tricky_parts() {
  return {" ",      " ",    "\n",     "\n",   "\t",     "\r\n",    "\v",      "a",
          "the",    "B",    "É",      "İ",    "Σ",      "ΑΣ",      "ẞ",       "\xE2\x96\x81",
          "\u00A0", "😀",    "\uFFFD", "'",    "<unk>",  " <unk> ", " <eos> ", std::string(1, '\0'),
          "\u2028", "日本", " x ",    "\x1F", "\u3000", "\uFEFF"};
}

// Returns the blanks of each kind, written down from the documentation.
inline std::vector<std::string> naive_blanks(Blanks blanks) {
  std::vector<std::string> all = {" ", "\t", "\n", "\v", "\f", "\r"};
  if (blanks == Blanks::kAscii) return all;
  for (const char* more :
       {"\x1C",   "\x1D",   "\x1E",   "\x1F",   "\u0085", "\u00A0", "\u1680", "\u2000",
        "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
        "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
    all.emplace_back(more);
  }
  return all;
}

// Returns the length of the blank that begins at text[position], 0 if there is none.
inline std::size_t naive_blank_at(const std::string& text, std::size_t position, Blanks blanks) {
  static const std::vector<std::string> kAll[] = {naive_blanks(Blanks::kAscii),
                                                  naive_blanks(Blanks::kUnicode)};
  for (const std::string& blank : kAll[static_cast<int>(blanks)]) {
    if (text.compare(position, blank.size(), blank) == 0) return blank.size();
  }
  return 0;
}

inline std::vector<std::string> naive_words(const std::string& text, Blanks blanks) {
  std::vector<std::string> words;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t blank = naive_blank_at(text, i, blanks);
    if (blank == 0 && !inside) words.emplace_back();
    if (blank == 0) words.back() += text[i];
    inside = blank == 0;
    i += inside ? 1 : blank;
  }
  return words;
}

// Returns true if every character that begins in the first `head` bytes is a blank.
inline bool naive_blank_head(const std::string& line, std::size_t head, Blanks blanks) {
  for (std::size_t i = 0; i < std::min(line.size(), head);) {
    const std::size_t blank = naive_blank_at(line, i, blanks);
    if (blank == 0) return false;
    i += blank;
  }
  return true;
}

// Returns a tricky text that sometimes has a line much longer than LineHead bytes.
inline std::string random_lines(Random& random) {
  std::string text = random_text(random, tricky_parts(), below(random, 60));
  if (below(random, 3) == 0) text += random_text(random, {"ab ", "é", "Σ ", "word", " "}, 1500);
  if (below(random, 6) == 0) text += std::string(1500, ' ');
  if (below(random, 6) == 0) text += "\n" + random_text(random, {"\u3000", "\u2003"}, 500);
  return text + random_text(random, tricky_parts(), below(random, 60));
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string decoded(const Vocabulary& vocabulary, const std::vector<TokenId>& ids) {
  std::string text;
  Decoder decoder(vocabulary, {}, [&text](std::string_view part) { text += part; });
  // Tokens are written one by one, because the text of a token may depend on the previous one.
  for (const TokenId id : ids) decoder.write(&id, 1);
  decoder.finish(std::nullopt);
  return text;
}

// Makes files with these texts, in a temporary folder.
class TextFiles {
 public:
  explicit TextFiles(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      names_.push_back(folder_ / (std::to_string(names_.size()) + ".txt"));
      test::spill(names_.back(), text);
    }
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  test::ScratchFolder folder_;
  std::vector<std::string> names_;
};

}  // namespace ql::text::testing
