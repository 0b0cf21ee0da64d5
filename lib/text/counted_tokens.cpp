#include "text/counted_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/words.h"

namespace ql::text {

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
