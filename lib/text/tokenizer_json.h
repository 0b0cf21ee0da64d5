// Reads tokenizer.json of the Hugging Face libraries.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace ql::text {

// Returns true for an object that contains an object "model", as tokenizer.json does.
bool is_tokenizer_json(const Json& json);

// Returns the tokens of a tokenizer.json as a vocabulary of type piece. Sets `names` to the tokens
// as the file writes them, and `unk` to the id of the token that the file declares as unknown, if
// any. Throws FormatError at `where`, also for a file with an unsupported decoder.
VocabularyContent read_tokenizer_json(const Json& json, const std::string& where,
                                      std::vector<std::string>& names, std::optional<TokenId>& unk);

}  // namespace ql::text
