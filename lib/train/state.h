// Declares the state of a training run, which state.json of a checkpoint holds, and counts
// divergences.
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

// The types below describe a divergence, and the response of a training run. A run diverges if a
// loss, gradient, weight, moment or memory is not finite, or if a loss is far above the previous
// losses. This file needs no LibTorch.

enum class OnDivergence {
  kStop,      // end the training run; the last checkpoint stays
  kSkip,      // skip the step and continue with the next segment
  kRollback,  // return to the newest checkpoint; continue with the segment after this step's
};
constexpr auto names_of(OnDivergence) { return std::array{"stop", "skip", "rollback"}; }

// Holds the norm of a part of the gradient (train/gradients.h).
struct GroupNorm {
  std::string name;
  double norm = 0;
};

struct Divergence {
  std::int64_t step = 0;  // the number of the step, from 0
  double loss = 0;
  std::optional<double> gradient_norm = {};  // absent if only the loss was computed
  double largest_loss = std::numeric_limits<double>::infinity();  // a larger loss is a jump
  std::string tensor = {};  // name of a tensor that was not finite at a checkpoint; else empty
  std::vector<GroupNorm> layers = {};  // norms by group, if known
  bool validation = false;             // a loss of a validation after the step was not finite

  // Returns true if the step was found before it changed the weights, and false if they are those
  // after the step.
  bool in_step() const { return tensor.empty() && !validation; }
  // Returns true if the loss is finite, but too large, and nothing else is wrong.
  bool jumped() const;
  // Returns, for example, "the loss is not a number"; empty if nothing is wrong.
  std::string reason() const;
};

// Holds what the advice after a divergence depends on.
struct DivergedRun {
  OnDivergence tried = OnDivergence::kStop;  // the run's setting of `divergence`
  double clip = 0;                           // the run's setting
  std::string checkpoint = {};               // from which --resume continues; empty: there is none
  std::int64_t checkpoint_step = 0;
  // If the weights of `checkpoint` gave the loss, every resume may diverge. Then `doubtful` lists
  // all checkpoints with these weights, and `older` is the newest of the others, if any.
  std::string doubtful = {}, older = {};
  double loss_jump = 0;  // the run's setting
};

// When this is thrown, the weights are those before the step if Divergence::in_step() is true.
class Diverged : public Error {
 public:
  // The advice in the message proposes a rollback only if `run` did not try one, and a resume only
  // if the run has a checkpoint.
  explicit Diverged(Divergence found, const DivergedRun& run = {});
  const Divergence& found() const { return found_; }

 private:
  Divergence found_;
};

// RunningLoss is a mean of the losses so far, in which the newest 100 steps weigh most. Up to 100
// steps it is the plain mean. Later, each new loss has a weight of one hundredth.
struct RunningLoss {
  double mean = 0;
  std::int64_t steps = 0;  // at most 100

  // Adds the `sum` of the losses of `count` steps.
  void add(double sum, std::int64_t count);
  // Returns the largest loss that does not count as a divergence; infinite before the first step
  // and if `jump` is 0.
  double largest(double jump) const;
};

// Counts the divergences of a training run. A few are accidents, but more than 10 within 100 steps
// will not stop by themselves. After a skip or a rollback a step of the same number may diverge
// again, and counts again.
struct Divergences {
  std::int64_t count = 0;
  std::vector<std::int64_t> recent;  // the steps of recent divergences

  void add(std::int64_t step);
  bool too_many() const;
};

// TrainingState is the state of a training run in state.json of a checkpoint. It has no tensors.

// Identifies the data that was read, so that a resume on other data is refused.
struct DataIdentity {
  // This is the path on the command line. A resume without a path reads this one. Another path
  // needs data of the same `hash`.
  std::string name;
  std::optional<std::vector<std::string>> more;  // further folders, if any
  std::string hash;                              // shard::MultiReader::hash()
  std::int64_t tokens = 0;
  // Returns "data/a", or "data/a and 2 more", for messages.
  std::string words() const;
};

struct Best {
  std::int64_t step = 0;
  double loss = 0;  // nats per token of the validation data
};

// Holds sums over steps.
struct StepSums {
  void add(const StepSums& more) {
    steps += more.steps;
    loss += more.loss;
    gradient_norm += more.gradient_norm;
  }
  std::int64_t steps = 0;
  double loss = 0;           // of each step the mean over the trained targets, nats
  double gradient_norm = 0;  // before clipping; 0 for a step that float16 left out
};

struct TrainingState {
  std::int64_t step = 0;      // finished steps
  std::int64_t updates = 0;   // TrainedNetwork::updates(), which write_checkpoint() fills in
  std::int64_t cursor = 0;    // the segment that the next step reads (train/streams.h)
  double elapsed = 0;         // seconds of wall time, including validation and earlier runs
  std::int64_t epoch = 0;     // of the next step; for human readers, because cursor determines it
  std::int64_t position = 0;  // offset of the next step in each row's part; for human readers
  std::int64_t validation_step = 0;  // the last step after which the model was validated; 0: none
  std::optional<Best> best;
  std::int64_t since_best = 0;  // validations since the best one
  StepSums since_log;           // of the steps since the last record of the log
  std::int64_t processes = 1;   // of the run that wrote the checkpoint
  RunningLoss running_loss;
  Divergences divergences;
  DataIdentity data, validation;
};

Json state_to_json(const TrainingState& state);
TrainingState state_from_json(const JsonObject& json);

}  // namespace ql::train
