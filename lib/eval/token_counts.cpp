#include "eval/token_counts.h"

#include <algorithm>

#include "base/signals.h"
#include "eval/token_check.h"

namespace ql::eval {
namespace {

constexpr std::int64_t kTokensPerRead = 65536;

}  // namespace

void for_each_piece(
    const TokenSource& source, std::int64_t begin, std::int64_t vocab_size,
    const std::function<void(std::int64_t begin, const std::vector<std::int64_t>& ids)>& use) {
  std::vector<std::int64_t> ids;
  while (begin < source.tokens) {
    check_for_stop();
    ids.resize(static_cast<std::size_t>(std::min(kTokensPerRead, source.tokens - begin)));
    const auto count = static_cast<std::int64_t>(ids.size());
    source.read(begin, count, ids.data(), 0);
    check_ids(source.name, begin, ids.data(), count, vocab_size);
    use(begin, ids);
    begin += count;
  }
}

std::vector<std::int64_t> count_tokens(const TokenSource& source, std::int64_t vocab_size,
                                       const TargetProgress& progress) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_size));
  for_each_piece(source, 0, vocab_size, [&](std::int64_t begin, const auto& ids) {
    for (const std::int64_t id : ids) ++counts[static_cast<std::size_t>(id)];
    if (progress) progress(begin + static_cast<std::int64_t>(ids.size()));
  });
  return counts;
}

}  // namespace ql::eval
