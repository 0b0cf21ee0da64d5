// Declares the settings of a training run, and computes its learning rate.
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
#include "machine/precision.h"
#include "net/network.h"
#include "shard/token_reader.h"
#include "train/state.h"

namespace ql::train {

// TrainingConfig has the settings of the "training" object in presets and in model.json. keys_of()
// maps the names of settings to members; most members have the name of their setting. The names
// follow the paper's appendix E if it names the setting. This file needs no LibTorch.

// Selects the factor by which the schedule lowers the learning rate. The comment before
// training_progress() describes each factor.
enum class Schedule { kCosine, kLinear, kInverseSquareRoot, kConstant };

constexpr auto names_of(Schedule) {
  return std::array{"cosine", "linear", "inverse-square-root", "constant"};
}

// Names the parameters that weight decay acts on (train/adam.h).
enum class DecayOn { kMatrices, kAll };

constexpr auto names_of(DecayOn) { return std::array{"matrices", "all"}; }

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // This is decoupled weight decay (Loshchilov and Hutter, 2019): besides Adam's update, a step
  // subtracts (current rate) * weight_decay * w from each weight w that decay_on selects.
  double weight_decay = 0;
  DecayOn decay_on = DecayOn::kMatrices;
};

struct TrainingConfig {
  std::int64_t batch = 0;    // rows: streams that are read in parallel
  std::int64_t steps = 0;    // of the complete training run: the length of the schedule
  double minutes = 0;        // wall-clock budget that ends the schedule earlier; 0: none
  double learning_rate = 0;  // the highest rate; warm-up and schedule only lower it
  double min_lr_ratio = 0;   // the schedule lowers the rate towards learning_rate times this
  // The warm-up takes this number of steps or, below 1, this fraction of the training run.
  double warmup_steps = 0;
  Schedule schedule = Schedule::kCosine;
  double decay_fraction = 0.2;  // kConstant: the rate falls in this last fraction of the run
  double clip = 0;              // largest norm of the complete gradient; 0: no clipping
  AdamOptions adam;
  std::int64_t eval_interval = 1000;        // steps between validations
  std::int64_t checkpoint_interval = 1000;  // steps between checkpoints
  // Also saves when RUN/last is this many minutes old; 0: only by steps.
  double checkpoint_minutes = 0;
  // In addition to RUN/best, these checkpoints are kept (train/run_folder.h): RUN/last, the
  // keep_last - 1 checkpoints before it, and those after a multiple of keep_every steps (0: none).
  std::int64_t keep_last = 1, keep_every = 0;
  std::int64_t log_interval = 100;  // steps averaged in one record of the log
  // The training run ends when this many validations in a row were not better than the best; 0: it
  // continues to the schedule's end.
  std::int64_t patience = 0;
  std::int64_t seed = 1;  // for the initial weights and every dropout
  machine::Precision precision = machine::Precision::kFloat32;
  // `divergence` is the response to a loss, gradient or weight that is not finite, and to a loss
  // that is more than `loss_jump` nats above its running mean (`loss_jump` 0: no finite loss is too
  // large). A jump of 10 nats multiplies perplexity by 22,000; no text does that to a healthy
  // network.
  OnDivergence divergence = OnDivergence::kStop;
  double loss_jump = 10;
  // The loss by which a Compressive Transformer learns its convolution and decoder
  // (nn/compression.h) has this weight; absent: the paper's 0.01. Other networks do not read it.
  std::optional<double> recons_loss_weight;
  // Trains only on the newer half of every segment's targets; the older floor(segment / 2) tokens
  // give context (the ablation of the Transformer-XL paper).
  bool half_loss = false;
  // `slices` is the number of micro-batches, of which each thread computes one at a time, `passes`
  // the number of accumulation steps of each (train/gradients.h); 0: chosen for the machine when
  // the training run begins. They change only the rounding of results.
  std::int64_t slices = 0, passes = 0;
  // Validation uses these lengths; absent: those of training.
  std::optional<std::int64_t> eval_segment, eval_memory, eval_compressed_memory;

  net::Lengths evaluation_lengths(const net::Lengths& training) const;
};

// keys_of() lists the keys of "training", in file order. --resume may change a key with kMayChange.
// Such a key controls only the remaining steps, their checkpoints, validations and log records, or
// how the work is divided. --resume may change a key with kMayChangeByName only if the command line
// names the key, because with a new value the results of the remaining steps are rounded
// differently. qltrain(1) describes each change.

inline constexpr Range kAboveZero(std::numeric_limits<double>::denorm_min(), Range::kInfinity,
                                  "above 0");
// A smaller epsilon may be 0 in float32, which makes the update of a weight without a gradient NaN.
inline constexpr Range kNormalFloat(std::numeric_limits<float>::min(), Range::kInfinity,
                                    "at least 1.1754944e-38, the smallest normal float32");
// `words` describe the range, including the meaning of 0.
constexpr Range from_zero(const char* words) { return {0, Range::kInfinity, words}; }

constexpr auto keys_of(const TrainingConfig&) {
  return [](auto& config, const auto& row) {
    row("batch", config.batch, {1, shard::kMostCursors}, kRequired | kMayChange);
    row("steps", config.steps, {1}, kRequired | kMayChange);
    row("minutes", config.minutes, from_zero("0 (no budget) or more"), kMayChange);
    row("learning_rate", config.learning_rate, kAboveZero, kRequired | kMayChange);
    row("min_lr_ratio", config.min_lr_ratio, {0, 1}, kMayChange);
    row("warmup_steps", config.warmup_steps, {0}, kMayChange);
    row("schedule", config.schedule, {}, kMayChange);
    row("decay_fraction", config.decay_fraction, {0, 1}, kMayChange);
    row("clip", config.clip, from_zero("0 (no clipping) or more"), kMayChange);
    row("adam_beta1", config.adam.beta1, kBelowOne);
    row("adam_beta2", config.adam.beta2, kBelowOne);
    row("adam_epsilon", config.adam.epsilon, kNormalFloat);
    row("weight_decay", config.adam.weight_decay, {0}, kMayChange);
    row("weight_decay_on", config.adam.decay_on, {}, kMayChange);
    row("eval_interval", config.eval_interval, {1}, kMayChange);
    row("checkpoint_interval", config.checkpoint_interval, {1}, kMayChange);
    row("checkpoint_minutes", config.checkpoint_minutes, from_zero("0 (by steps only) or more"),
        kMayChange);
    row("keep_last", config.keep_last, {1}, kMayChange);
    row("keep_every", config.keep_every, from_zero("0 (none) or more"), kMayChange);
    row("log_interval", config.log_interval, {1}, kMayChange);
    row("seed", config.seed, {0});
    row("precision", config.precision, {}, kMayChangeByName);
    row("divergence", config.divergence, {}, kMayChange);
    row("loss_jump", config.loss_jump, from_zero("0 (any jump is accepted) or more"), kMayChange);
    row("recons_loss_weight", config.recons_loss_weight, {0});
    row("half_loss", config.half_loss);
    row("slices", config.slices, from_zero("0 (chosen by the number of threads) or more"),
        kMayChange);
    row("passes", config.passes, from_zero("0 (chosen by the available memory) or more"),
        kMayChange);
    row("eval_segment", config.eval_segment, {1});
    row("eval_memory", config.eval_memory, {0});
    row("eval_compressed_memory", config.eval_compressed_memory, {0});
    row("patience", config.patience, from_zero("0 (no limit) or more"), kMayChange);
  };
}

// Lists the keys of the "training" object, for net::read_preset.
std::vector<std::string> training_keys();

// Absent keys keep their defaults; batch, steps and learning_rate are required. Throws FormatError
// for unknown keys, missing required keys and wrong types. Impossible values are added to
// `conflicts`, with the allowed values.
TrainingConfig training_from_json(const JsonObject& json, Conflicts& conflicts);
// Adds a conflict if the lengths of validation differ from those of training and do not fit the
// network.
void find_conflicts(const TrainingConfig& config, const net::Network& network,
                    Conflicts& conflicts);
// Returns why a training of this network reads no value of a key of "network" or "training", such
// as "the network has one scale, so nothing is compressed". Returns "" if it reads the key.
std::string why_unread(const std::string& key, const TrainingConfig& config,
                       const net::Network& network);
Json training_to_json(const TrainingConfig& config);

// The learning rate is learning_rate times a linear warm-up times the schedule's factor, which
// falls from 1 towards min_lr_ratio:
//
//   cosine               half a cosine over the complete training run
//   linear               a line from the end of the warm-up to the end of the run
//   inverse-square-root  sqrt(warm-up / step) after the warm-up, but no less than min_lr_ratio; a
//                        warm-up of less than one step counts as one step
//   constant             1, then a line over the last decay_fraction of the run

// Returns the finished fraction of the training run, from 0 to 1. This is step / steps or, with a
// budget in minutes, the larger of step / steps and elapsed / budget. `elapsed` is in seconds.
double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed);

// Returns the learning rate of the next step after `step` finished steps. `progress` comes from
// training_progress(). The factor of inverse-square-root ignores `progress`, but a warm-up below 1
// follows it.
double learning_rate(const TrainingConfig& config, std::int64_t step, double progress);

// Returns the seconds until the training run ends or, if `stop_at` is not 0, stops after step
// `stop_at`. Every step and every validation takes the given seconds. So far the run has finished
// `step` steps in `elapsed` seconds. A budget in minutes does not include the validation after the
// last step.
double seconds_left(const TrainingConfig& config, std::int64_t step, std::int64_t stop_at,
                    double elapsed, double step_seconds, double validation_seconds);

// Returns 0 if the warm-up ends before the last step. Otherwise returns the highest of 1,001
// learning rates of the run, computed as if there were no budget in minutes.
double highest_rate_in_warm_up(const TrainingConfig& config);

}  // namespace ql::train
