#include "shard/document_age.h"

#include <algorithm>

namespace ql::shard {

std::int64_t document_age(const std::vector<std::int64_t>& starts, std::int64_t position) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), position);
  return next == starts.begin() ? position : position - *(next - 1);
}

}  // namespace ql::shard
