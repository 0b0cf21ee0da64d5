// Counts how often each word, character or byte occurs in a text, and measures the text that a
// token stream decodes to.

#include "text/token_counter.h"

namespace ql::text {

// Returns true if a single space follows every word and a space begins the line: " the cat ". A
// later part of a line (without `begins`) begins with a word instead: "the cat ".
static bool is_padded(std::string_view line, bool begins, Blanks blanks) {
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

static void add_each(std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& others) {
  std::transform(counts.begin(), counts.end(), others.begin(), counts.begin(), std::plus<>());
}

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

CountedTokens::CountedTokens(const Vocabulary& vocabulary, shard::TokenSink& sink)
    : unk_(vocabulary.unk()),
      blanks_(vocabulary.blanks()),
      sink_(sink),
      decoder_(vocabulary, {EosRule::kLine, vocabulary.line_style()},
               [this](std::string_view text) { count(text); }) {}

void CountedTokens::begin_document() {
  decoder_.begin_document();
  sink_.begin_document();
}

void CountedTokens::write(const TokenId* ids, std::size_t count) {
  if (unk_) counts_.unknown += std::count(ids, ids + count, *unk_);
  decoder_.write(ids, count);
  sink_.write(ids, count);
}

void CountedTokens::finish(const std::optional<shard::TextCounts>& /*given*/) {
  decoder_.finish(std::nullopt);
  if (inside_line_) ++counts_.lines;
  sink_.finish(counts_);
}

void CountedTokens::count(std::string_view text) {
  counts_.bytes += static_cast<std::int64_t>(text.size());
  counts_.characters += count_code_points(text);
  counts_.words += count_word_starts(text, inside_word_, blanks_);
  counts_.lines += std::count(text.begin(), text.end(), '\n');
  inside_word_ = !ends_with_blank(text, blanks_);
  inside_line_ = text.back() != '\n';
}

}  // namespace ql::text
