#include "eval/units.h"

#include <utility>

namespace ql::eval {

UnitSums::UnitSums(std::optional<shard::TokenId> unknown, Sink sink)
    : unknown_(unknown), sink_(std::move(sink)) {}

void UnitSums::put_token(std::int64_t id, bool is_target) {
  ++position_;
  open_ = true;
  if (!is_target) return;
  unit_.end = position_;
  if (unknown_ && id == static_cast<std::int64_t>(*unknown_)) ++unit_.unknown_targets;
}

void UnitSums::end_unit(std::optional<std::string> text) {
  unit_.text = std::move(text);
  ended_.push_back(std::move(unit_));
  unit_.unknown_targets = 0;
  open_ = false;
  hand_over_scored();
}

void UnitSums::put_losses(std::int64_t position, const double* losses, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sum_.nll += losses[i];
    ++sum_.targets;
    scored_ = position + i + 1;
    hand_over_scored();
  }
}

void UnitSums::finish() {
  if (open_) end_unit();
  while (!ended_.empty()) hand_over();
}

void UnitSums::hand_over_scored() {
  while (!ended_.empty() && ended_.front().end <= scored_) hand_over();
}

void UnitSums::hand_over() {
  ++sum_.number;
  sum_.unknown_targets = ended_.front().unknown_targets;
  sum_.text = std::move(ended_.front().text);
  ended_.pop_front();
  sink_(sum_);
  sum_.targets = 0;
  sum_.nll = 0;
}

}  // namespace ql::eval
