// tokenizer.json of the Hugging Face libraries.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace ql::text {

// True for an object that has a model, as such a file does.
bool is_tokenizer_json(const Json& json);

// The tokens of such a file as a vocabulary of type piece. Sets `names` to the tokens as the file
// writes them, and `unk` to the one that the file names so. Throws FormatError at `where`, also for
// a file whose way of writing tokens is unknown here. `names` must be empty.
VocabularyContent read_tokenizer_json(const Json& json, const std::string& where,
                                      std::vector<std::string>& names, std::optional<TokenId>& unk);

}  // namespace ql::text
