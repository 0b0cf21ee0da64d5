// Holds the settings of a training: the "training" object of presets and of model.json. Key names
// follow the paper's appendix E where it has one. There are no tensors here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/conflicts.h"
#include "base/json.h"
#include "base/names.h"
#include "machine/precision.h"
#include "net/network.h"
#include "train/divergence.h"

namespace ql::train {

// The course of the learning rate after the warm-up (train/schedule.h).
enum class Schedule { kCosine, kLinear, kInverseSquareRoot, kConstant };

constexpr auto names_of(Schedule) {
  return std::array{"cosine", "linear", "inverse-square-root", "constant"};
}

// The parameters that weight decay acts on (train/adam.h).
enum class DecayOn { kMatrices, kAll };

constexpr auto names_of(DecayOn) { return std::array{"matrices", "all"}; }

struct TrainingConfig {
  std::int64_t batch = 0;    // rows: streams that are read side by side
  std::int64_t steps = 0;    // of the whole training: the length of the schedule
  double minutes = 0;        // wall-clock budget that ends the schedule earlier; 0: none
  double learning_rate = 0;  // the highest, reached after the warm-up
  double min_lr_ratio = 0;   // the last learning rate is min_lr_ratio * learning_rate
  // Steps until the highest is reached; below 1: this part of the training.
  double warmup_steps = 0;
  Schedule schedule = Schedule::kCosine;
  double decay_fraction = 0.2;  // of a constant schedule: the part at its end in which it falls
  double clip = 0;              // largest norm of the whole gradient; 0: no clipping
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double weight_decay = 0;
  DecayOn weight_decay_on = DecayOn::kMatrices;
  std::int64_t eval_interval = 1000;        // steps between validations
  std::int64_t checkpoint_interval = 1000;  // steps between checkpoints
  double checkpoint_minutes = 0;            // or so many minutes after the last one; 0: steps alone
  // These checkpoints stay (train/retention.h): RUN/last, keep_last - 1 before it, and those of
  // steps that keep_every divides (0: none).
  std::int64_t keep_last = 1, keep_every = 0;
  std::int64_t log_interval = 100;  // steps averaged in one record of the log
  // The training ends when so many validations in a row were not better than the best; 0: it goes
  // on to the schedule's end.
  std::int64_t patience = 0;
  std::int64_t seed = 1;  // of the weights and of every dropout
  machine::Precision precision = machine::Precision::kFloat32;
  // The training does this when loss or gradient is not finite, or when the loss is more than
  // loss_jump nats above its running mean (0: no loss is too large). 10 nats are a perplexity
  // 22,000 times the mean's: no text does that to a network that works, and one that broke does.
  OnDivergence divergence = OnDivergence::kStop;
  double loss_jump = 10;
  // Weight of the loss by which a Compressive Transformer learns its convolution and decoder
  // (nn/compression_internal.h); absent: the paper's 0.01. Other networks do not read it.
  std::optional<double> recons_loss_weight;
  // Trains on the newer half of every segment's targets alone; the older floor(segment / 2) tokens
  // give context (the ablation of the Transformer-XL paper).
  bool half_loss = false;
  // The number of parts of the batch that are computed side by side, and of passes for each
  // (train/slices.h); 0: chosen for the machine when the training begins. They change only the
  // rounding of results.
  std::int64_t slices = 0, passes = 0;
  // Lengths of validation; absent: those of training.
  std::optional<std::int64_t> eval_segment, eval_memory, eval_compressed_memory;

  net::Lengths evaluation_lengths(const net::Lengths& training) const;
};

// Lists every key of the "training" object, for net::read_preset.
std::vector<std::string> training_keys();

// Keys that are absent keep their default; batch, steps and learning_rate have none. Unknown keys
// and wrong types are FormatErrors, impossible values ConfigErrors that say what is allowed.
TrainingConfig training_from_json(const JsonObject& json);
// Does the same, but adds impossible values to `conflicts`.
TrainingConfig training_from_json(const JsonObject& json, Conflicts& conflicts);
// Adds lengths of validation that are not those of training and do not fit the network.
void find_conflicts(const TrainingConfig& config, const net::Network& network,
                    Conflicts& conflicts);
Json training_to_json(const TrainingConfig& config);

// Lists the keys of network and training that --resume lets change. They drive the steps that are
// still to come, say how often the training saves, scores and logs, or divide the work. qltrain(1)
// says what each change means.
std::vector<std::string> keys_that_may_change();
// Lists the keys that may change where the command line names them: such a change is meant. They
// change the rounding of the steps to come.
std::vector<std::string> keys_that_may_change_by_name();

}  // namespace ql::train
