#include "shard/document_age.h"

#include <algorithm>

namespace ql::shard {

std::int64_t document_age(const std::vector<std::int64_t>& starts, std::int64_t position) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), position);
  return next == starts.begin() ? position : position - *(next - 1);
}

std::int64_t DocumentAges::age(std::int64_t position) {
  for (; !ahead_.empty() && ahead_.front() <= position; ahead_.pop_front()) {
    start_ = ahead_.front();
  }
  return position - start_;
}

std::optional<std::int64_t> DocumentAges::next_start() const {
  return ahead_.empty() ? std::nullopt : std::optional(ahead_.front());
}

}  // namespace ql::shard
