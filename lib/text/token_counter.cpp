#include "text/token_counter_internal.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/utf8.h"
#include "text/words.h"

namespace ql::text {
namespace {

// " the cat " at the beginning of a line, "the cat " in a later piece of it.
bool is_padded(std::string_view line, bool begins, Blanks blanks) {
  if (begins) {
    if (line.empty() || line.front() != ' ') return false;
    line.remove_prefix(1);
  }
  bool after_blank = true;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool blank = blank_at(line, i, blanks) > 0;
    if (blank && (line[i] != ' ' || after_blank)) return false;
    after_blank = blank;
  }
  return after_blank;
}

void add_each(std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& others) {
  std::transform(counts.begin(), counts.end(), others.begin(), counts.begin(), std::plus<>());
}

}  // namespace

void WordCounter::add(std::string_view line, bool begins, bool) {
  any_line_ = true;
  all_padded_ = all_padded_ && is_padded(line, begins, blanks_);
  std::array<Word, WordSplitter::kMostWords> words;
  std::array<std::uint32_t, WordSplitter::kMostWords> ids;
  WordSplitter splitter(line, blanks_);
  while (const std::size_t count = splitter.next(words.data())) {
    words_.insert(line, words.data(), count, ids.data());
    counts_.resize(words_.size());
    for (std::size_t i = 0; i < count; ++i) ++counts_[ids[i]];
  }
}

void WordCounter::merge(const WordCounter& other) {
  any_line_ = any_line_ || other.any_line_;
  all_padded_ = all_padded_ && other.all_padded_;
  for (std::uint32_t id = 0; id < other.counts_.size(); ++id) {
    const std::uint32_t here = words_.insert(other.words_.token(id));
    counts_.resize(words_.size());
    counts_[here] += other.counts_[id];
  }
}

std::vector<TokenCount> WordCounter::counts() const {
  std::vector<TokenCount> counts;
  counts.reserve(counts_.size());
  for (std::uint32_t id = 0; id < counts_.size(); ++id) {
    counts.push_back({std::string(words_.token(id)), counts_[id]});
  }
  return counts;
}

LineStyle WordCounter::line_style() const {
  return any_line_ && all_padded_ ? LineStyle::kPadded : LineStyle::kPlain;
}

CharCounter::CharCounter() : counts_(kLastCodePoint + 1) {}

void CharCounter::add(std::string_view line, bool, bool ended) {
  for (std::size_t position = 0; position < line.size();) {
    const CodePoint point = code_point_at(line, position);
    ++counts_[point.value];
    position += point.length;
  }
  if (ended) ++counts_['\n'];
}

void CharCounter::merge(const CharCounter& other) { add_each(counts_, other.counts_); }

std::vector<TokenCount> CharCounter::counts() const {
  std::vector<TokenCount> counts;
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if (counts_[c] == 0) continue;
    counts.push_back({"", counts_[c]});
    append_utf8(counts.back().token, c);
  }
  return counts;
}

void ByteCounter::add(std::string_view line, bool, bool ended) {
  for (const char c : line) ++counts_[static_cast<unsigned char>(c)];
  if (ended) ++counts_['\n'];
}

void ByteCounter::merge(const ByteCounter& other) { add_each(counts_, other.counts_); }

std::vector<TokenCount> ByteCounter::counts() const {
  std::vector<TokenCount> counts;
  for (std::size_t byte = 0; byte < counts_.size(); ++byte) {
    counts.push_back({byte_token(static_cast<unsigned char>(byte)), counts_[byte]});
  }
  return counts;
}

}  // namespace ql::text
