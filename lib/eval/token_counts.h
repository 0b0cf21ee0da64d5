// Counts how often every id occurs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "eval/evaluation.h"
#include "eval/token_source.h"

namespace ql::eval {

// Reads tokens [begin, source.tokens) piece by piece. Throws Error for ids outside the vocabulary.
void for_each_piece(
    const TokenSource& source, std::int64_t begin, std::int64_t vocab_size,
    const std::function<void(std::int64_t begin, const std::vector<std::int64_t>& ids)>& use);

// Returns the occurrences of ids 0 .. vocab_size-1. Throws as for_each_piece does.
std::vector<std::int64_t> count_tokens(const TokenSource& source, std::int64_t vocab_size,
                                       const TargetProgress& progress = {});

}  // namespace ql::eval
