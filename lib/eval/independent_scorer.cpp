#include "eval/independent_scorer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "eval/chunk_size.h"
#include "eval/losses.h"
#include "eval/token_check.h"

namespace ql::eval {

IndependentScorer::IndependentScorer(const nn::ModelAtLengths& model, std::string name,
                                     std::optional<shard::TokenId> begin,
                                     const EvaluationOptions& options)
    : model_(model),
      name_(std::move(name)),
      begin_(begin),
      options_(options),
      segments_(options.chunk > 0 ? std::max<std::int64_t>(1, options.chunk / segment())
                                  : automatic_segments(model.model().network(), model.geometry(),
                                                       model.model().options().device())),
      memory_(model.start_memory(1)) {
  if (options.stride > 0) {
    throw ConfigError("--stride", "slides over one stream, and units that stand alone are many",
                      "leave it out, or the units");
  }
  evaluation_.batch = 1;
}

bool IndependentScorer::put(std::int64_t id) {
  check_ids(name_, position_, &id, 1, model_.model().network().vocab_size);
  if (of_unit_ == 0 && begin_) put_input(static_cast<std::int64_t>(*begin_));
  const bool is_target = of_unit_ > 0;
  if (is_target) {
    targets_.push_back({static_cast<std::int64_t>(inputs_.size()) - 1, position_, id});
  }
  ++position_;
  put_input(id);
  return is_target;
}

void IndependentScorer::put_input(std::int64_t id) {
  if (of_unit_ % segment() == 0) {
    if (static_cast<std::int64_t>(ages_.size()) >= segments_) score(segments_);
    ages_.push_back(of_unit_);
  }
  inputs_.push_back(id);
  ++of_unit_;
}

void IndependentScorer::end_unit() {
  if (of_unit_ == 0) return;
  if ((of_unit_ - 1) % segment() == 0) {
    // Nothing follows the last token, and it stands alone in its segment.
    ages_.pop_back();
    inputs_.pop_back();
  }
  inputs_.resize(ages_.size() * static_cast<std::size_t>(segment()));
  of_unit_ = 0;
}

void IndependentScorer::put_waiting() {
  const auto inputs = static_cast<std::int64_t>(inputs_.size());
  // The target of the newest input of a unit under way has not come yet.
  score((of_unit_ > 0 ? inputs - 1 : inputs) / segment());
}

void IndependentScorer::finish() {
  end_unit();
  put_waiting();
}

void IndependentScorer::score(std::int64_t segments) {
  if (segments == 0) return;
  const at::NoGradGuard no_gradient;
  const std::int64_t count = segments * segment();
  const at::Tensor tokens =
      at::tensor(std::vector<std::int64_t>(inputs_.begin(), inputs_.begin() + count))
          .view({segments, segment()});
  // Every input of a unit but its last has a target.
  std::vector<nn::Places> scored_places(static_cast<std::size_t>(segments));
  for (const Target& target : targets_) {
    if (target.place >= count) break;
    scored_places[static_cast<std::size_t>(target.place / segment())].end =
        target.place % segment() + 1;
  }
  const at::Tensor states =
      model_.forward_stream(tokens, memory_, {ages_.begin(), ages_.begin() + segments},
                            options_.attention_map, scored_places);
  std::vector<std::int64_t> places, ids, positions;
  for (; !targets_.empty() && targets_.front().place < count; targets_.pop_front()) {
    places.push_back(targets_.front().place);
    ids.push_back(targets_.front().id);
    positions.push_back(targets_.front().position);
  }
  if (!ids.empty()) {
    const at::Tensor scored =
        states.flatten(0, 1).index_select(0, at::tensor(places).to(states.device()));
    const at::Tensor losses = losses_in_blocks(model_.model(), scored, at::tensor(ids));
    const std::int64_t all = scored.size(0);
    const std::int64_t most = rows_of_likeliest(model_.model(), scored, options_.top);
    for (std::int64_t block = 0; block < all; block += most) {
      const std::int64_t end_of_block = std::min(all, block + most);
      const std::vector<LikelyToken> likeliest = likeliest_in_blocks(
          model_.model(), scored.narrow(0, block, end_of_block - block), options_.top);
      // Without a begin token the first token of a unit is no target, so positions have gaps.
      for (std::int64_t first = block, end = block; first < end_of_block; first = end) {
        const auto position = [&](std::int64_t row) {
          return positions[static_cast<std::size_t>(row)];
        };
        for (end = first + 1; end < end_of_block && position(end) == position(end - 1) + 1;) ++end;
        add_losses({position(first), ids.data() + first, losses.data_ptr<double>() + first,
                    end - first, likeliest.data() + (first - block) * options_.top, options_.top},
                   options_, evaluation_);
      }
      check_for_stop();
    }
  }
  inputs_.erase(inputs_.begin(), inputs_.begin() + count);
  ages_.erase(ages_.begin(), ages_.begin() + segments);
  for (Target& target : targets_) target.place -= count;
  if (options_.progress) options_.progress(evaluation_.targets);
  check_for_stop();
}

}  // namespace ql::eval
