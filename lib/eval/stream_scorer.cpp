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
  check_stride(model.geometry(), options.stride);
  evaluation_.batch = 1;
  evaluation_.stride = options.stride;
  evaluation_.reset = options.reset;
}

void StreamScorer::put_document(std::int64_t position) {
  if (model_.model().network().reset_memory_at_documents) documents_.put_start(position);
}

std::int64_t StreamScorer::waiting_targets() const {
  return static_cast<std::int64_t>(waiting_.size()) - context_ - 1;
}

std::int64_t StreamScorer::next_targets() const {
  // Nothing is before a first window, so it scores all its targets.
  const bool first = context_ == 0 && stride() < segment();
  const std::int64_t targets = first ? segment() : chunk_tokens();
  return options_.reset > 0 ? std::min(targets, options_.reset - position_ % options_.reset)
                            : targets;
}

void StreamScorer::put(const std::int64_t* ids, std::int64_t count) {
  check_ids(name_, position_ - context_ + static_cast<std::int64_t>(waiting_.size()), ids, count,
            model_.model().network().vocab_size);
  waiting_.insert(waiting_.end(), ids, ids + count);
  // One token more than a chunk has to wait: the last one of the chunk has the next one as its
  // target.
  while (waiting_targets() >= next_targets()) score(next_targets());
}

void StreamScorer::put_waiting() {
  score(waiting_targets() / targets_of_window() * targets_of_window());
}

void StreamScorer::finish() { score(waiting_targets()); }

// The ages of the documents that the first tokens of the next segments belong to.
std::vector<std::int64_t> StreamScorer::next_ages(std::int64_t segments) {
  std::vector<std::int64_t> ages;
  for (std::int64_t i = 0; i < segments; ++i) {
    ages.push_back(documents_.age(position_ + i * segment()));
  }
  return ages;
}

// Returns the places in the next windows whose targets, `count` in all, are scored.
std::vector<nn::Places> StreamScorer::next_scored(std::int64_t windows, std::int64_t count) const {
  const std::int64_t fresh = targets_of_window();
  std::vector<nn::Places> scored;
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::int64_t targets = std::min(fresh, count - i * fresh);
    const std::int64_t left_out =
        std::clamp<std::int64_t>(options_.first_target - (position_ + 1 + i * fresh), 0, targets);
    scored.push_back({context_ + left_out, context_ + targets});
  }
  return scored;
}

void StreamScorer::score(std::int64_t count) {
  if (count <= 0) return;
  const at::NoGradGuard no_gradient;
  const std::int64_t fresh = targets_of_window(), windows = (count + fresh - 1) / fresh;
  // The ids behind the end of the stream are 0. The network is causal, so nothing that is scored
  // sees them.
  const at::Tensor tokens = at::zeros({context_ + windows * fresh}, at::kLong);
  std::copy_n(waiting_.begin(), context_ + count, tokens.data_ptr<std::int64_t>());
  const at::Tensor targets = at::empty({count}, at::kLong);
  std::copy_n(waiting_.begin() + context_ + 1, count, targets.data_ptr<std::int64_t>());

  const bool resets = model_.model().network().reset_memory_at_documents;
  const at::Tensor states =
      model_
          .forward_stream(tokens.unfold(0, segment(), fresh), memory_,
                          resets ? next_ages(windows) : std::vector<std::int64_t>(),
                          options_.attention_map, next_scored(windows, count))
          .narrow(1, context_, fresh);
  const at::Tensor scored = states.flatten(0, 1).narrow(0, 0, count);
  const at::Tensor losses = losses_in_blocks(model_.model(), scored, targets);
  add_losses_with_likeliest(
      model_.model(), scored,
      {position_ + 1, targets.data_ptr<std::int64_t>(), losses.data_ptr<double>(), count}, options_,
      evaluation_);
  position_ += count;
  const bool resets_now = options_.reset > 0 && position_ % options_.reset == 0;
  if (resets_now) memory_ = model_.start_memory(1);
  const std::int64_t read = context_ + count;
  context_ = resets_now ? 0 : std::min(read, segment() - stride());
  waiting_.erase(waiting_.begin(), waiting_.begin() + read - context_);
  if (options_.progress) options_.progress(evaluation_.targets);
  check_for_stop();
}

}  // namespace ql::eval
