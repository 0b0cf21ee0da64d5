#include "eval/units.h"

#include <utility>

namespace ql::eval {

UnitSums::UnitSums(std::optional<shard::TokenId> unknown, Sink sink)
    : unknown_(unknown), sink_(std::move(sink)) {}

void UnitSums::put_token(std::int64_t id) {
  ++open_.end;
  open_.unknown += unknown_ && id == static_cast<std::int64_t>(*unknown_) ? 1 : 0;
}

void UnitSums::end_unit() {
  ended_.push_back(open_);
  last_end_ = open_.end;
  open_.unknown = 0;
}

void UnitSums::put_losses(std::int64_t position, const double* losses, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    while (!ended_.empty() && ended_.front().end <= position + i) {
      hand_over();
    }
    sum_.nll += losses[i];
    ++sum_.targets;
  }
}

void UnitSums::finish() {
  if (open_.end > last_end_) {
    end_unit();
  }
  while (!ended_.empty()) {
    hand_over();
  }
}

void UnitSums::hand_over() {
  ++sum_.number;
  sum_.unknown = ended_.front().unknown;
  ended_.pop_front();
  sink_(sum_);
  sum_.targets = 0;
  sum_.nll = 0;
}

}  // namespace ql::eval
