// Checks the tokens that both evaluators read.
#pragma once

#include "eval/token_source.h"

namespace ql::eval {

// Throws Error when the stream has fewer than two tokens, because nothing could be scored.
void check_length(const TokenSource& source);

// Throws Error for the first of `ids` outside 0 .. vocab_size-1; `begin` is the position of ids[0].
void check_ids(const std::string& name, std::int64_t begin, const std::int64_t* ids,
               std::int64_t count, std::int64_t vocab_size);

}  // namespace ql::eval
