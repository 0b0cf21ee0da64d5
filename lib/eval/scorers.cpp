// Collects the tokens of a stream, and scores them chunk by chunk.

#include "eval/scorers.h"

#include <ATen/core/grad_mode.h>

#include <numeric>

#include "base/process.h"
#include "eval/chunk_size.h"
#include "eval/losses.h"

namespace ql::eval {

Scorer::Scorer(const nn::ModelAtLengths& model, std::string name, const EvaluationOptions& options)
    : model_(model),
      name_(std::move(name)),
      options_(options),
      segments_(segments_of_chunk(model, options.chunk)),
      memory_(model.start_memory(1)) {}

StreamScorer::StreamScorer(const nn::ModelAtLengths& model, std::string name,
                           const EvaluationOptions& options)
    : Scorer(model, std::move(name), options) {
  check_stride(model.geometry(), options.stride);
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
  // Nothing precedes the first window, so it scores all its targets.
  const bool first = context_ == 0 && stride() < segment();
  const std::int64_t targets = first ? segment() : chunk_tokens();
  return options_.reset > 0 ? std::min(targets, options_.reset - position_ % options_.reset)
                            : targets;
}

void StreamScorer::put(const std::int64_t* ids, std::int64_t count) {
  check_ids(name_, position_ - context_ + static_cast<std::int64_t>(waiting_.size()), ids, count,
            model_.model().network().vocab_size);
  waiting_.insert(waiting_.end(), ids, ids + count);
  // Scoring a chunk needs one token more: the target of the chunk's last token.
  while (waiting_targets() >= next_targets()) score(next_targets());
}

void StreamScorer::put_waiting() {
  score(waiting_targets() / targets_of_window() * targets_of_window());
}

void StreamScorer::finish() { score(waiting_targets()); }

void StreamScorer::score(std::int64_t count) {
  if (count <= 0) return;
  const at::NoGradGuard no_gradient;
  const std::int64_t fresh = targets_of_window(), windows = (count + fresh - 1) / fresh;
  // The ids that fill up the last window are 0. The network is causal, so nothing that is scored
  // sees them.
  const at::Tensor tokens = at::zeros({context_ + windows * fresh}, at::kLong);
  std::copy_n(waiting_.begin(), context_ + count, tokens.data_ptr<std::int64_t>());
  const auto targets = waiting_.begin() + context_ + 1;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), position_ + 1);

  std::vector<std::int64_t> document_offsets;
  std::vector<nn::Places> scored;  // for each window, the offsets that are scored
  for (std::int64_t i = 0; i < windows; ++i) {
    if (model_.model().network().reset_memory_at_documents) {
      document_offsets.push_back(documents_.offset(position_ - context_ + i * fresh));
    }
    const std::int64_t of_window = std::min(fresh, count - i * fresh);
    const std::int64_t left_out =
        std::clamp<std::int64_t>(options_.first_target - (position_ + 1 + i * fresh), 0, of_window);
    scored.push_back({context_ + left_out, context_ + of_window});
  }
  const at::Tensor states = model_.forward_stream(tokens.unfold(0, segment(), fresh), memory_,
                                                  document_offsets, options_.attention_map, scored);
  score_states(model_.model(), states.narrow(1, context_, fresh).flatten(0, 1).narrow(0, 0, count),
               {targets, targets + count}, positions, options_, evaluation_);
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
