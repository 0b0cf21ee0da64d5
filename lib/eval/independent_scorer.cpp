// Collects the segments of independent units, and scores them chunk by chunk.

#include "eval/independent_scorer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "base/process.h"
#include "eval/losses.h"
#include "eval/short_sequences.h"

namespace ql::eval {

IndependentScorer::IndependentScorer(const nn::ModelAtLengths& model, std::string name,
                                     std::optional<shard::TokenId> begin,
                                     const EvaluationOptions& options)
    : Scorer(model, std::move(name), options), begin_(begin) {
  if (options.stride > 0) {
    throw ConfigError("--stride", "scores the data as one text, but --reset separates its units",
                      "leave out --stride or --reset");
  }
}

bool IndependentScorer::put(std::int64_t id) {
  check_ids(name_, position_, &id, 1, model_.model().network().vocab_size);
  if (of_unit_ == 0 && begin_) put_input(static_cast<std::int64_t>(*begin_));
  const bool is_target = of_unit_ > 0;
  if (is_target) {
    ++waiting_.back().targets;
    targets_.push_back({position_, id});
  }
  ++position_;
  put_input(id);
  return is_target;
}

void IndependentScorer::put_input(std::int64_t id) {
  if (of_unit_ % segment() == 0) {
    if (waiting_states_ >= segments_ * segment()) score(0);
    waiting_.push_back({{}, of_unit_, 0, false});
    waiting_states_ += segment();
  }
  waiting_.back().inputs.push_back(id);
  ++of_unit_;
}

std::int64_t IndependentScorer::states_of(const Segment& waiting) const {
  return waiting.is_unit ? waiting.targets : segment();
}

void IndependentScorer::end_unit() {
  if (of_unit_ == 0) return;
  Segment& last = waiting_.back();
  waiting_states_ -= segment();
  // The last token of a unit predicts nothing, so a segment that holds only this token is dropped.
  if (last.targets == 0) {
    waiting_.pop_back();
  } else {
    // Attention is shown for the segments that go through a layer together.
    last.is_unit = last.before == 0 && options_.attention_map == nullptr;
    waiting_states_ += states_of(last);
  }
  of_unit_ = 0;
}

void IndependentScorer::put_waiting() {
  // The newest input of an open unit has no target yet, so its segment is not scored.
  score(of_unit_ > 0 ? 1 : 0);
}

void IndependentScorer::finish() {
  end_unit();
  put_waiting();
}

void IndependentScorer::score(std::size_t left) {
  if (waiting_.size() <= left) return;
  const at::NoGradGuard no_gradient;
  const auto end = waiting_.end() - static_cast<std::ptrdiff_t>(left);
  const std::int64_t targets = std::accumulate(
      waiting_.begin(), end, std::int64_t{0},
      [](std::int64_t sum, const Segment& segment) { return sum + segment.targets; });
  at::Tensor states =
      at::empty({targets, model_.model().network().d_model}, model_.model().options());
  std::vector<ShortSequence> units;
  std::vector<const Segment*> others;
  std::vector<std::int64_t> rows;  // of the others' first targets
  std::int64_t row = 0;
  for (auto segment = waiting_.begin(); segment != end; ++segment) {
    waiting_states_ -= states_of(*segment);
    if (segment->is_unit) {
      units.push_back({segment->inputs.data(), segment->targets, 0, row});
    } else {
      others.push_back(&*segment);
      rows.push_back(row);
    }
    row += segment->targets;
  }
  read_side_by_side(model_, begin_, std::move(units), states);
  read_together(others, rows, states);

  std::vector<std::int64_t> ids, positions;
  for (; static_cast<std::int64_t>(ids.size()) < targets; targets_.pop_front()) {
    ids.push_back(targets_.front().id);
    positions.push_back(targets_.front().position);
  }
  if (targets > 0) score_states(model_.model(), states, ids, positions, options_, evaluation_);
  waiting_.erase(waiting_.begin(), end);
  if (options_.progress) options_.progress(evaluation_.targets);
  check_for_stop();
}

void IndependentScorer::read_together(const std::vector<const Segment*>& segments,
                                      const std::vector<std::int64_t>& rows, at::Tensor& states) {
  if (segments.empty()) return;
  const at::Tensor tokens =
      at::zeros({static_cast<std::int64_t>(segments.size()), segment()}, at::kLong);
  std::vector<std::int64_t> before;
  std::vector<nn::Places> scored;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = *segments[i];
    std::copy(segment.inputs.begin(), segment.inputs.end(),
              tokens[static_cast<std::int64_t>(i)].data_ptr<std::int64_t>());
    before.push_back(segment.before);
    scored.push_back({0, segment.targets});
  }
  const at::Tensor read =
      model_.forward_stream(tokens, memory_, before, options_.attention_map, scored);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::int64_t targets = segments[i]->targets;
    states.narrow(0, rows[i], targets)
        .copy_(read[static_cast<std::int64_t>(i)].narrow(0, 0, targets));
  }
}

}  // namespace ql::eval
