// Counts ids, and computes the losses of a unigram model.

#include "eval/unigram.h"

#include <cmath>

#include "base/process.h"
#include "base/stopwatch.h"
#include "eval/losses.h"

namespace ql::eval {

constexpr std::int64_t kTokensPerRead = 65536;

// Calls use(begin, ids) for tokens [begin, source.tokens), piece by piece. Throws Error for ids
// outside the vocabulary.
template <typename Use>
static void for_each_piece(const TokenSource& source, std::int64_t begin, std::int64_t vocab_size,
                           const Use& use) {
  std::vector<std::int64_t> ids;
  while (begin < source.tokens) {
    check_for_stop();
    ids.resize(static_cast<std::size_t>(std::min(kTokensPerRead, source.tokens - begin)));
    const auto count = static_cast<std::int64_t>(ids.size());
    source.read(begin, count, ids.data());
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

Unigram::Unigram(const TokenSource& source, std::int64_t vocab_size, const TargetProgress& progress)
    : vocab_size_(vocab_size),
      loss_of_others_(std::log(static_cast<double>(source.tokens + vocab_size))) {
  for_each_piece(source, 0, vocab_size, [&](std::int64_t begin, const auto& ids) {
    for (const std::int64_t id : ids) ++losses_[id];
    if (progress) progress(begin + static_cast<std::int64_t>(ids.size()));
  });
  for (auto& [id, count] : losses_) count = loss_of_others_ - std::log(count + 1);
}

double Unigram::loss(std::int64_t id) const {
  const auto found = losses_.find(id);
  return found == losses_.end() ? loss_of_others_ : found->second;
}

Evaluation Unigram::evaluate(const TokenSource& source, const EvaluationOptions& options) const {
  check_length(source);
  const Stopwatch watch;
  Evaluation result;
  std::vector<double> losses;
  for_each_piece(source, 1, vocab_size_, [&](std::int64_t begin, const auto& ids) {
    losses.clear();
    for (const std::int64_t id : ids) losses.push_back(loss(id));
    const auto count = static_cast<std::int64_t>(ids.size());
    add_losses({begin, ids.data(), losses.data(), count}, options, result);
    if (options.progress) options.progress(result.targets);
  });
  result.seconds = watch.seconds();
  return result;
}

}  // namespace ql::eval
