// tokenizer.json of the Hugging Face libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ql::text {

// True for what begins as a JSON object with members.
bool is_tokenizer_json(std::string_view text);

// The tokens of such a file as a vocabulary of type piece. Sets `names` to the tokens as the file
// writes them, and `unk` to the one that the file names so. Throws FormatError at `where`, also for
// a file whose way of writing tokens is unknown here. `names` must be empty.
VocabularyContent read_tokenizer_json(std::string_view text, const std::string& where,
                                      std::vector<std::string>& names, std::optional<TokenId>& unk);

}  // namespace ql::text
