// Finds where in its document a token stands.
#pragma once

#include <cstdint>
#include <vector>

namespace ql::shard {

// Returns how many tokens of its document stand before token `position`. `starts` are ascending
// positions where documents start; the tokens before the first of them are a document, too.
std::int64_t document_age(const std::vector<std::int64_t>& starts, std::int64_t position);

}  // namespace ql::shard
