// Reads items, contexts with continuations to score, and encodes them as language-model evaluations
// do.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/encoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// An item is a JSON object on a line:
//   {"context": "The cat", "choices": [" sat", " sits"], "answer": 0}
// Instead of texts, `context` and all choices may be lists of token ids. `answer` counts from 0,
// and may be absent. Further keys are kept.

// Returns the object of a line, with its keys checked. Throws FormatError at `where`, the file and
// line.
Json parse_item(std::string_view line, const std::string& where);

// Encodes items for one checkpoint.
class ItemEncoder {
 public:
  // Without a `vocabulary` only items of ids are accepted; `missing` then says why, and what to do.
  // The vocabulary must outlive this object.
  ItemEncoder(const Vocabulary* vocabulary, std::string missing);

  // Returns {"context": ids, "choices": [{"ids", "unknown", "bytes", "characters"}, ...]} for the
  // result of parse_item(). `bytes` and `characters` are those of the choice as given, or null for
  // ids.
  //
  // Words are split where context and choice meet. In other vocabularies a piece may span that
  // border, so context and choice are encoded together, and the tokens of the context, encoded
  // alone, are taken off in front. Blanks at the end of the context are moved to the choice before.
  // This is what EleutherAI's lm-evaluation-harness does. Throws Error at `where` for a text that
  // the vocabulary cannot encode, and for an id outside of it.
  Json encode(const Json& item, const std::string& where) const;

 private:
  std::vector<TokenId> ids_of(const std::string& text, const std::string& where) const;
  Json encode_ids(const Json& item, const std::string& where) const;

  const Vocabulary* vocabulary_;
  std::string missing_;
  std::unique_ptr<const Encoder> encoder_;
};

}  // namespace ql::text
