// Sums losses by line, document or word.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "shard/token_info.h"

namespace ql::eval {

struct UnitSum {
  std::int64_t number = 0;           // from 1
  std::int64_t targets = 0;          // scored tokens
  std::int64_t unknown_targets = 0;  // targets that are <unk>
  double nll = 0;                    // nats
  std::optional<std::string> text;   // of a word
};

// Tokens come first, their losses later. A unit is handed over as soon as its end and its last loss
// are known, or at finish().
class UnitSums {
 public:
  using Sink = std::function<void(const UnitSum&)>;
  UnitSums(std::optional<shard::TokenId> unknown, Sink sink);

  // `is_target`: a loss of it will come.
  void put_token(std::int64_t id, bool is_target);
  // Says that the unit of the tokens so far is complete. `text` goes with its sum.
  void end_unit(std::optional<std::string> text = std::nullopt);
  // Takes the losses of targets from `position` of the stream on, in order.
  void put_losses(std::int64_t position, const double* losses, std::int64_t count);
  // Ends the stream. A unit that was begun and not ended is handed over, too.
  void finish();

 private:
  struct Unit {
    std::int64_t end = 0;  // position behind its last target, or the last one before it
    std::int64_t unknown_targets = 0;
    std::optional<std::string> text = {};
  };
  void hand_over_scored();
  void hand_over();

  std::optional<shard::TokenId> unknown_;
  Sink sink_;
  std::deque<Unit> ended_;
  Unit unit_;                  // of the tokens since the last end
  bool open_ = false;          // there are such tokens
  UnitSum sum_;                // of the unit whose losses arrive
  std::int64_t position_ = 0;  // behind the last token
  std::int64_t scored_ = 0;    // behind the last loss
};

}  // namespace ql::eval
