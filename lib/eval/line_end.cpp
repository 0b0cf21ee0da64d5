#include "eval/line_end.h"

#include <algorithm>

#include "eval/token_texts.h"

namespace ql::eval {

std::optional<shard::TokenId> line_end_of(const shard::VocabularyInfo& vocabulary,
                                          const std::function<std::string()>& text) {
  if (vocabulary.eos) return vocabulary.eos;
  const bool bytes = vocabulary.type == "byte";
  if (!bytes && vocabulary.type != "char" && vocabulary.type != "piece") return std::nullopt;
  const TokenTexts tokens = read_token_texts(text());
  const auto found = std::find(tokens.begin(), tokens.end(), bytes ? "<0x0A>" : "\n");
  if (found == tokens.end()) return std::nullopt;
  return static_cast<shard::TokenId>(found - tokens.begin());
}

}  // namespace ql::eval
