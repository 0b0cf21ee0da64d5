// Finds the token that ends a line.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shard/token_info.h"

namespace ql::eval {

// Returns <eos>, or the token of the line feed in a vocabulary of characters, bytes or pieces, or
// nothing where lines cannot be told apart. `text` returns the vocabulary's file, or "".
std::optional<shard::TokenId> line_end_of(const shard::VocabularyInfo& vocabulary,
                                          const std::function<std::string()>& text);

}  // namespace ql::eval
