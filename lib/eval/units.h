// Sums losses by line or by document.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "shard/token_info.h"

namespace ql::eval {

struct UnitSum {
  std::int64_t number = 0;           // from 1
  std::int64_t targets = 0;          // scored tokens; the first token of the stream is not one
  std::int64_t unknown_targets = 0;  // targets that are <unk>
  double nll = 0;                    // nats
};

// Tokens come first, their losses later. A unit is handed over as soon as its end and its last loss
// are known, or at finish().
class UnitSums {
 public:
  using Sink = std::function<void(const UnitSum&)>;
  UnitSums(std::optional<shard::TokenId> unknown, Sink sink);

  void put_token(std::int64_t id);
  // Says that the unit of the tokens so far is complete.
  void end_unit();
  // Takes the losses of targets from `position` of the stream on, in order.
  void put_losses(std::int64_t position, const double* losses, std::int64_t count);
  // Ends the stream. A unit that was begun and not ended is handed over, too.
  void finish();

 private:
  struct Open {
    std::int64_t end = 0;  // position behind its last token
    std::int64_t unknown_targets = 0;
  };
  void hand_over_scored();
  void hand_over();

  std::optional<shard::TokenId> unknown_;
  Sink sink_;
  std::deque<Open> ended_;
  Open open_;    // counts the tokens since the last end; its end is that of the tokens so far
  UnitSum sum_;  // of the unit whose losses arrive
  std::int64_t last_end_ = 0;
  std::int64_t scored_ = 1;  // position behind the last loss; the first token has none
};

}  // namespace ql::eval
