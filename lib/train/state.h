// Has the state of a training, which is state.json of a checkpoint, and counts divergences.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace ql::train {

// A divergence, and what a training does about it. A training diverges by a loss or gradient that
// is not finite, a loss far above the previous ones, or weights that are not finite. This part has
// no tensors.

enum class OnDivergence {
  kStop,      // end the training; the last checkpoint stays
  kSkip,      // skip the step and continue with the next segment
  kRollback,  // return to the newest checkpoint, and continue with the segment after the step
};
constexpr auto names_of(OnDivergence) { return std::array{"stop", "skip", "rollback"}; }

// Holds the norm of a part of the gradient (train/gradients.h).
struct GroupNorm {
  std::string name;
  double norm = 0;
};

struct Divergence {
  std::int64_t step = 0;  // the number of the step, from 0
  double loss = 0, gradient_norm = 0;
  double largest_loss = std::numeric_limits<double>::infinity();  // a larger loss is a jump
  std::string tensor = {};  // has elements that are not finite; found before a checkpoint
  std::vector<GroupNorm> layers = {};  // if they are known

  // Returns "the loss is not a number"; empty if nothing is wrong.
  std::string reason() const;
};

// The weights are those before the step, unless they themselves are not finite.
class Diverged : public Error {
 public:
  // `tried` is what the training has done about divergences so far.
  explicit Diverged(Divergence found, OnDivergence tried = OnDivergence::kStop);
  const Divergence& found() const { return found_; }

 private:
  Divergence found_;
};

// RunningLoss is the mean of the losses so far, in which the newest 100 steps weigh most. Up to 100
// steps it is the plain mean. Later each loss enters with a hundredth.
struct RunningLoss {
  double mean = 0;
  std::int64_t steps = 0;  // at most 100

  // Adds the `sum` of the losses of `count` steps.
  void add(double sum, std::int64_t count);
  // Returns the largest loss that does not count as a divergence; infinite before the first step
  // and if `jump` is 0.
  double largest(double jump) const;
};

// Counts the divergences of a training. A few are accidents. More than 10 within 100 steps, or at
// one step, will not stop by themselves.
struct Divergences {
  std::int64_t count = 0;
  std::vector<std::int64_t> recent;  // the steps of those that still count

  void add(std::int64_t step);
  bool too_many() const;
};

// state.json of a checkpoint has the state of a training. This part has no tensors.

// Identifies the data that was read, so that a resume on other data is refused.
struct DataIdentity {
  // This is the name on the command line, where a resume looks for the data; it is not compared.
  std::string name;
  std::optional<std::vector<std::string>> more;  // the folders that follow it, if any
  std::string hash;                              // shard::MultiReader::hash()
  std::int64_t tokens = 0;
  // Returns "data/a", or "data/a and 2 more", for messages.
  std::string words() const;
};

struct Best {
  std::int64_t step = 0;
  double loss = 0;  // nats per token of the validation data
};

// Describes the steps since the last record of the log.
struct SinceLog {
  std::int64_t steps = 0;
  double loss_sum = 0;  // nats per token
  double gradient_norm_sum = 0;
};

struct TrainingState {
  std::int64_t step = 0;      // finished steps
  std::int64_t updates = 0;   // TrainedNetwork::updates(), which write_checkpoint() fills in
  std::int64_t cursor = 0;    // the segment that the next step reads (train/streams.h)
  double elapsed = 0;         // seconds of wall time, including validation and earlier runs
  std::int64_t epoch = 0;     // of the next step; it follows from cursor and is kept for readers
  std::int64_t position = 0;  // of the next step in each row's part; kept for readers too
  std::int64_t validation_step = 0;  // the last step after which the model was validated; 0: none
  std::optional<Best> best;
  std::int64_t since_best = 0;  // validations since the best one
  SinceLog since_log;
  std::int64_t processes = 1;  // processes that wrote it together
  RunningLoss running_loss;
  Divergences divergences;
  DataIdentity data, validation;
};

// Returns the same as dump_json(), without a tree (base/json.h).
std::string state_text(const TrainingState& state);
TrainingState state_from_json(const JsonObject& json);

}  // namespace ql::train
