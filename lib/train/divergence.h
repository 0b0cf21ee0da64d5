// Describes a divergence and what a training does about it. A training diverges by a loss or
// gradient that is not finite, a loss far above those before it, or weights that are not finite.
// There are no tensors here.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/names.h"

namespace ql::train {

enum class OnDivergence {
  kStop,      // end the training; the last checkpoint stays
  kSkip,      // leave the step out and go on with the next segment
  kRollback,  // go back to the newest checkpoint, and on with the segment behind the step
};
constexpr auto names_of(OnDivergence) { return std::array{"stop", "skip", "rollback"}; }

// The norm of a part of the gradient (train/gradients.h).
struct GroupNorm {
  std::string name;
  double norm = 0;
};

struct Divergence {
  std::int64_t step = 0;  // the number of the step, from 0
  double loss = 0, gradient_norm = 0;
  double largest_loss = std::numeric_limits<double>::infinity();  // a larger loss has jumped
  std::string tensor = {};             // has numbers that are not finite; found before a checkpoint
  std::vector<GroupNorm> layers = {};  // if they are known

  // "the loss is not a number"; empty when nothing is wrong.
  std::string reason() const;
};

// The weights are those before the step, unless they are themselves not finite.
class Diverged : public Error {
 public:
  // `tried` is what the training has done about divergences so far.
  explicit Diverged(Divergence found, OnDivergence tried = OnDivergence::kStop);
  const Divergence& found() const { return found_; }

 private:
  Divergence found_;
};

// The mean of the losses so far, where the newest 100 steps weigh most. Up to 100 steps it is the
// plain mean. Later each loss enters with a hundredth.
struct RunningLoss {
  double mean = 0;
  std::int64_t steps = 0;  // at most 100

  // Adds the `sum` of the losses of `count` steps.
  void add(double sum, std::int64_t count);
  // The largest loss that is no divergence; infinite before the first step and when `jump` is 0.
  double largest(double jump) const;
};

// The divergences of a training. A few are bad luck. More than 10 within 100 steps, or at one step,
// will not stop by themselves.
struct Divergences {
  std::int64_t count = 0;
  std::vector<std::int64_t> recent;  // the steps of those that still count

  void add(std::int64_t step);
  bool too_many() const;
};

}  // namespace ql::train
