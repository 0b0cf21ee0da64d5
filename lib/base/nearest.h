// "Did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ql {

// The candidate with the smallest edit distance to `typed`, or "" when none is near enough (more
// than a third of the letters would have to change, and `typed` is not the beginning of one).
std::string nearest(std::string_view typed, const std::vector<std::string>& candidates);

}  // namespace ql
