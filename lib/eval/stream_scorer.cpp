#include "eval/stream_scorer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "eval/chunk_size.h"
#include "eval/losses.h"

namespace ql::eval {

StreamScorer::StreamScorer(const nn::Model& model, const net::Lengths& lengths, std::int64_t chunk)
    : model_(model),
      geometry_(net::make_geometry(model.network(), lengths)),
      segments_(chunk > 0
                    ? std::max<std::int64_t>(1, chunk / lengths.segment)
                    : automatic_segments(model.network(), geometry_, model.options().device())),
      memory_(model.start_memory(geometry_, 1)) {}

void StreamScorer::put_document(std::int64_t position) {
  if (model_.network().reset_memory_at_documents) {
    starts_.push_back(position);
  }
}

void StreamScorer::put(const std::int64_t* ids, std::int64_t count, const TargetSink& sink) {
  waiting_.insert(waiting_.end(), ids, ids + count);
  // One more than a chunk: the last token read has the next one as its target.
  while (static_cast<std::int64_t>(waiting_.size()) > chunk_tokens()) {
    score(chunk_tokens(), sink);
  }
}

void StreamScorer::put_waiting(const TargetSink& sink) {
  const std::int64_t segment = geometry_.lengths.segment;
  const std::int64_t ready = (static_cast<std::int64_t>(waiting_.size()) - 1) / segment * segment;
  if (ready > 0) {
    score(ready, sink);
  }
}

void StreamScorer::finish(const TargetSink& sink) {
  const std::int64_t left = static_cast<std::int64_t>(waiting_.size()) - 1;
  if (left > 0) {
    score(left, sink);
  }
}

// Of the documents that the first tokens of the next segments belong to.
std::vector<std::int64_t> StreamScorer::next_ages(std::int64_t segments) {
  std::vector<std::int64_t> ages;
  for (std::int64_t i = 0; i < segments; ++i) {
    const std::int64_t first = position_ + i * geometry_.lengths.segment;
    for (; !starts_.empty() && starts_.front() <= first; starts_.pop_front()) {
      document_ = starts_.front();
    }
    ages.push_back(first - document_);
  }
  return ages;
}

void StreamScorer::score(std::int64_t count, const TargetSink& sink) {
  const at::NoGradGuard no_gradient;
  const std::int64_t segment = geometry_.lengths.segment;
  const std::int64_t segments = (count + segment - 1) / segment;
  // What lies behind the end of the stream is 0: it is causal, so nothing that is scored sees it.
  const at::Tensor tokens = at::zeros({segments, segment}, at::kLong);
  std::copy_n(waiting_.begin(), count, tokens.data_ptr<std::int64_t>());
  const at::Tensor targets = at::empty({count}, at::kLong);
  std::copy_n(waiting_.begin() + 1, count, targets.data_ptr<std::int64_t>());

  const bool resets = model_.network().reset_memory_at_documents;
  const at::Tensor states = model_.forward_stream(
      geometry_, tokens, memory_, resets ? next_ages(segments) : std::vector<std::int64_t>());
  const at::Tensor losses =
      losses_in_blocks(model_, states.flatten(0, 1).narrow(0, 0, count), targets);
  sink(position_ + 1, targets.data_ptr<std::int64_t>(), losses.data_ptr<double>(), count);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  position_ += count;
}

}  // namespace ql::eval
