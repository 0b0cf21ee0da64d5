// The result of an evaluation, for any kind of model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ql::eval {

struct LossSums {
  std::int64_t targets = 0;
  double nll = 0;      // sum of the losses in nats
  double squares = 0;  // sum of the squared losses

  void add(double loss);
  void add(const LossSums& other);
  double mean() const;        // nll / targets
  double perplexity() const;  // exp(mean)
  // Standard error of mean(), taking the losses as independent; NaN below two targets.
  double standard_error() const;
};

// The sums are over all targets. A stream has one less than tokens, because the first has nothing
// before it.
struct Evaluation : LossSums {
  LossSums known;            // over the targets that are not <unk>
  std::int64_t batch = 0;    // columns read side by side
  std::int64_t stride = 0;   // targets that a window scores; 0: there are no windows
  std::int64_t reset = 0;    // tokens after which memory is emptied; 0: never
  std::string reset_at;      // what is read as if it stood alone, such as "line"; empty: nothing
  std::int64_t warm_up = 0;  // tokens read twice: not scored at column starts, all columns together
  double seconds = 0;

  using LossSums::add;
  // Adds the evaluation of another text with the same settings.
  void add(const Evaluation& other);
};

// Is called for scored targets with the position of the first target token in the stream and the
// losses in nats of `count` targets from there on. Every target is handed over once. Calls for one
// column come in order; columns interleave.
using LossSink =
    std::function<void(std::int64_t position, const double* losses, std::int64_t count)>;

struct LikelyToken {
  std::int64_t id = 0;
  double log_probability = 0;  // natural logarithm
};

// Scored targets at consecutive positions of the stream.
struct ScoredTargets {
  std::int64_t position = 0;  // of the first target
  const std::int64_t* ids = nullptr;
  const double* losses = nullptr;  // in nats
  std::int64_t count = 0;          // of ids and losses
  // The likeliest tokens at the place of every target, `top` a target, the best first.
  const LikelyToken* likeliest = nullptr;
  std::int64_t top = 0;

  // Leaves out the first `skipped` targets.
  void skip(std::int64_t skipped);
};
// Is called as a LossSink is.
using TargetSink = std::function<void(const ScoredTargets& targets)>;
using TargetProgress = std::function<void(std::int64_t targets_done)>;

}  // namespace ql::eval
