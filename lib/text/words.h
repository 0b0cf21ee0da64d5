// Words are what stands between blanks: the six ASCII characters blank, tab, line feed, vertical
// tab, form feed and carriage return. Other Unicode blanks (U+00A0 ...) belong to words.
#pragma once

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

// Calls visit(std::string_view word) for every word.
template <typename Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  std::size_t end = 0;
  for (;;) {
    std::size_t begin = end;
    while (begin < text.size() && is_blank(text[begin])) ++begin;
    if (begin == text.size()) return;
    end = begin;
    while (end < text.size() && !is_blank(text[end])) ++end;
    visit(text.substr(begin, end - begin));
  }
}

// How many words begin in `text`; `inside_word` says that a word's beginning stands right before
// it.
inline std::int64_t count_word_starts(std::string_view text, bool inside_word) {
  std::int64_t starts = 0;
  bool inside = inside_word;
  for (const char c : text) {
    const bool word = !is_blank(c);
    starts += word && !inside ? 1 : 0;
    inside = word;
  }
  return starts;
}

}  // namespace ql::text
