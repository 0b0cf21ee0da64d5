// Collects the tokens of a stream, and scores them chunk by chunk.

#include "eval/scorers.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

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

StreamScorer::Window StreamScorer::window_at(std::int64_t position) const {
  const std::int64_t reset = options_.reset;
  const std::int64_t last_reset = reset > 0 ? position - position % reset : 0;
  // Nothing precedes the first window after a reset, so it scores all its targets.
  const std::int64_t context = std::min(position - last_reset, segment() - stride());
  const std::int64_t begin = position - context;
  std::int64_t end = begin + segment();
  if (reset > 0) end = std::min(end, last_reset + reset);
  return {begin, position, end, begin - last_reset};
}

std::vector<StreamScorer::Window> StreamScorer::next_windows(bool all) const {
  const std::int64_t with_target = waiting_end() - 1;
  std::vector<Window> windows;
  for (std::int64_t position = position_; position < with_target; position = windows.back().end) {
    Window window = window_at(position);
    const bool complete = window.end <= with_target;
    if ((!complete && !all) || static_cast<std::int64_t>(windows.size()) == segments_) break;
    window.end = std::min(window.end, with_target);
    windows.push_back(window);
  }
  return windows;
}

void StreamScorer::put(const std::int64_t* ids, std::int64_t count) {
  check_ids(name_, waiting_end(), ids, count, model_.model().network().vocab_size);
  waiting_.insert(waiting_.end(), ids, ids + count);
  // These tokens are enough for the windows of a chunk, each of which scores at most a segment.
  while (waiting_end() - 1 - position_ >= segments_ * segment()) score(next_windows(false));
}

void StreamScorer::put_waiting() {
  for (auto windows = next_windows(false); !windows.empty(); windows = next_windows(false)) {
    score(windows);
  }
}

void StreamScorer::finish() {
  for (auto windows = next_windows(true); !windows.empty(); windows = next_windows(true)) {
    score(windows);
  }
}

void StreamScorer::score(const std::vector<Window>& windows) {
  const at::NoGradGuard no_gradient;
  const bool documents = model_.model().network().reset_memory_at_documents;
  // The ids that fill up a window are 0. The network is causal, so nothing that is scored sees
  // them.
  const at::Tensor tokens =
      at::zeros({static_cast<std::int64_t>(windows.size()), segment()}, at::kLong);
  std::int64_t* row = tokens.data_ptr<std::int64_t>();
  std::vector<std::int64_t> offsets, places, ids, positions;
  std::vector<nn::Places> scored;  // for each window, the offsets that are scored
  for (const Window& window : windows) {
    const auto inputs = waiting_.begin() + (window.begin - begin_);
    std::copy_n(inputs, window.end - window.begin, row);
    if (documents) {
      offsets.push_back(std::min(documents_.offset(window.begin), window.since_reset));
    } else if (options_.reset > 0) {
      offsets.push_back(window.since_reset);
    }
    const std::int64_t left_out = std::clamp<std::int64_t>(
        options_.first_target - (window.first + 1), 0, window.end - window.first);
    scored.push_back({window.first - window.begin + left_out, window.end - window.begin});
    const std::int64_t place = row - tokens.data_ptr<std::int64_t>() - window.begin;
    for (std::int64_t input = window.first; input < window.end; ++input) {
      places.push_back(place + input);
      ids.push_back(inputs[input - window.begin + 1]);
      positions.push_back(input + 1);
    }
    row += segment();
  }
  at::Tensor states =
      model_.forward_stream(tokens, memory_, offsets, options_.attention_map, scored).flatten(0, 1);
  if (static_cast<std::int64_t>(places.size()) < states.size(0)) {
    states = states.index_select(0, at::tensor(places).to(states.device()));
  }
  score_states(model_.model(), states, ids, positions, options_, evaluation_);
  position_ = windows.back().end;
  const std::int64_t next = window_at(position_).begin;
  waiting_.erase(waiting_.begin(), waiting_.begin() + (next - begin_));
  begin_ = next;
  if (options_.progress) options_.progress(evaluation_.targets);
  check_for_stop();
}

}  // namespace ql::eval
