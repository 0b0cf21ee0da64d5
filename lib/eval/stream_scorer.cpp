#include "eval/stream_scorer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/signals.h"
#include "eval/chunk_size.h"
#include "eval/losses.h"
#include "eval/token_check.h"

namespace ql::eval {

StreamScorer::StreamScorer(const nn::ModelAtLengths& model, std::string name,
                           const EvaluationOptions& options)
    : model_(model),
      name_(std::move(name)),
      options_(options),
      segments_(options.chunk > 0 ? std::max<std::int64_t>(1, options.chunk / segment())
                                  : automatic_segments(model.model().network(), model.geometry(),
                                                       model.model().options().device())),
      memory_(model.start_memory(1)) {
  evaluation_.batch = 1;
}

void StreamScorer::put_document(std::int64_t position) {
  if (model_.model().network().reset_memory_at_documents) starts_.push_back(position);
}

void StreamScorer::put(const std::int64_t* ids, std::int64_t count) {
  check_ids(name_, position_ + static_cast<std::int64_t>(waiting_.size()), ids, count,
            model_.model().network().vocab_size);
  waiting_.insert(waiting_.end(), ids, ids + count);
  // One token more than a chunk has to wait: the last one of the chunk has the next one as its
  // target.
  while (static_cast<std::int64_t>(waiting_.size()) > chunk_tokens()) score(chunk_tokens());
}

void StreamScorer::put_waiting() {
  score((static_cast<std::int64_t>(waiting_.size()) - 1) / segment() * segment());
}

void StreamScorer::finish() { score(static_cast<std::int64_t>(waiting_.size()) - 1); }

// The ages of the documents that the first tokens of the next segments belong to.
std::vector<std::int64_t> StreamScorer::next_ages(std::int64_t segments) {
  std::vector<std::int64_t> ages;
  for (std::int64_t i = 0; i < segments; ++i) {
    const std::int64_t first = position_ + i * segment();
    for (; !starts_.empty() && starts_.front() <= first; starts_.pop_front()) {
      document_ = starts_.front();
    }
    ages.push_back(first - document_);
  }
  return ages;
}

void StreamScorer::score(std::int64_t count) {
  if (count <= 0) return;
  const at::NoGradGuard no_gradient;
  const std::int64_t segments = (count + segment() - 1) / segment();
  // The ids behind the end of the stream are 0. The network is causal, so nothing that is scored
  // sees them.
  const at::Tensor tokens = at::zeros({segments, segment()}, at::kLong);
  std::copy_n(waiting_.begin(), count, tokens.data_ptr<std::int64_t>());
  const at::Tensor targets = at::empty({count}, at::kLong);
  std::copy_n(waiting_.begin() + 1, count, targets.data_ptr<std::int64_t>());

  const bool resets = model_.model().network().reset_memory_at_documents;
  const at::Tensor states = model_.forward_stream(
      tokens, memory_, resets ? next_ages(segments) : std::vector<std::int64_t>());
  const at::Tensor losses =
      losses_in_blocks(model_.model(), states.flatten(0, 1).narrow(0, 0, count), targets);
  add_losses(position_ + 1, targets.data_ptr<std::int64_t>(), losses.data_ptr<double>(), count,
             options_, evaluation_);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  position_ += count;
  if (options_.progress) options_.progress(evaluation_.targets);
  check_for_stop();
}

}  // namespace ql::eval
