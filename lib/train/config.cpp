// The keys of the "training" object, their ranges and conflicts, and the learning rate.

#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "net/geometry.h"

namespace ql::train {

namespace {

constexpr Range kAboveZero(std::numeric_limits<double>::denorm_min(), Range::kInfinity, "above 0");

// A smaller epsilon may be 0 in float32, and the update of a weight without a gradient would be 0 /
// 0.
constexpr Range kSmallest(std::numeric_limits<float>::min(), Range::kInfinity,
                          "at least 1.1754944e-38, the smallest normal float32");

// `words` describe the range, including the meaning of 0.
constexpr Range from_zero(const char* words) { return {0, Range::kInfinity, words}; }

}  // namespace

constexpr auto keys_of(const TrainingConfig&) {
  return [](auto& config, const auto& row) {
    row("batch", config.batch, {1}, kRequired | kMayChange);
    row("steps", config.steps, {1}, kRequired | kMayChange);
    row("minutes", config.minutes, from_zero("0 (no budget) or more"), kMayChange);
    row("learning_rate", config.learning_rate, kAboveZero, kRequired | kMayChange);
    row("min_lr_ratio", config.min_lr_ratio, {0, 1}, kMayChange);
    row("warmup_steps", config.warmup_steps, {0}, kMayChange);
    row("schedule", config.schedule, {}, kMayChange);
    row("decay_fraction", config.decay_fraction, {0, 1}, kMayChange);
    row("clip", config.clip, from_zero("0 (no clipping) or more"), kMayChange);
    row("adam_beta1", config.adam_beta1, kBelowOne);
    row("adam_beta2", config.adam_beta2, kBelowOne);
    row("adam_epsilon", config.adam_epsilon, kSmallest);
    row("weight_decay", config.weight_decay, {0}, kMayChange);
    row("weight_decay_on", config.weight_decay_on, {}, kMayChange);
    row("eval_interval", config.eval_interval, {1}, kMayChange);
    row("checkpoint_interval", config.checkpoint_interval, {1}, kMayChange);
    row("checkpoint_minutes", config.checkpoint_minutes, from_zero("0 (by steps alone) or more"),
        kMayChange);
    row("keep_last", config.keep_last, {1}, kMayChange);
    row("keep_every", config.keep_every, from_zero("0 (none) or more"), kMayChange);
    row("log_interval", config.log_interval, {1}, kMayChange);
    row("seed", config.seed, {0});
    row("precision", config.precision, {}, kMayChangeByName);
    row("divergence", config.divergence, {}, kMayChange);
    row("loss_jump", config.loss_jump, from_zero("0 (however large) or more"), kMayChange);
    row("recons_loss_weight", config.recons_loss_weight, {0});
    row("half_loss", config.half_loss);
    row("slices", config.slices, from_zero("0 (as the machine has threads) or more"), kMayChange);
    row("passes", config.passes, from_zero("0 (as the memory allows) or more"), kMayChange);
    row("eval_segment", config.eval_segment, {1});
    row("eval_memory", config.eval_memory, {0});
    row("eval_compressed_memory", config.eval_compressed_memory, {0});
    row("patience", config.patience, from_zero("0 (without end) or more"), kMayChange);
  };
}

net::Lengths TrainingConfig::evaluation_lengths(const net::Lengths& training) const {
  net::Lengths lengths = training;
  lengths.segment = eval_segment.value_or(training.segment);
  lengths.memory = eval_memory.value_or(training.memory);
  lengths.compressed_memory = eval_compressed_memory.value_or(training.compressed_memory);
  return lengths;
}

std::vector<std::string> training_keys() { return key_names<TrainingConfig>(); }

TrainingConfig training_from_json(const JsonObject& json) {
  Conflicts conflicts;
  TrainingConfig config = training_from_json(json, conflicts);
  conflicts.raise();
  return config;
}

TrainingConfig training_from_json(const JsonObject& json, Conflicts& conflicts) {
  const auto config = read_keys<TrainingConfig>(json, conflicts);
  const double warm_up = config.warmup_steps;
  if (warm_up > 1 && (warm_up != std::floor(warm_up) || warm_up > 0x1p53)) {
    conflicts.add(json.where(), fmt::format("warmup_steps is {}, must be a whole number of steps, "
                                            "or below 1 as a part of the training",
                                            warm_up));
  }
  return config;
}

void find_conflicts(const TrainingConfig& config, const net::Network& network,
                    Conflicts& conflicts) {
  const net::Lengths lengths = config.evaluation_lengths(network.lengths);
  if (lengths == network.lengths) return;
  try {
    network.check_layers();
  } catch (const ConfigError&) {
    return;  // a conflict of the network: no lengths fit such layers
  }
  try {
    net::make_geometry(network, lengths);
  } catch (const ConfigError& error) {
    conflicts.add("lengths of validation", error.what());
  }
}

Json training_to_json(const TrainingConfig& config) {
  Json json = write_keys(config);
  if (config.warmup_steps == std::floor(config.warmup_steps)) {
    json["warmup_steps"] = static_cast<std::int64_t>(config.warmup_steps);
  }
  return json;
}

std::vector<std::string> keys_that_may_change() {
  std::vector<std::string> names = net::network_keys_that_may_change();
  const std::vector<std::string> own = key_names<TrainingConfig>(kMayChange);
  names.insert(names.end(), own.begin(), own.end());
  return names;
}

std::vector<std::string> keys_that_may_change_by_name() {
  return key_names<TrainingConfig>(kMayChangeByName);
}

namespace {

// Returns the rate after the warm-up as a fraction of the highest. `number` is that of the next
// step, from 1.
double ratio_of_schedule(const TrainingConfig& config, double number, double progress) {
  constexpr double kPi = 3.14159265358979323846;
  const double steps = static_cast<double>(config.steps), least = config.min_lr_ratio;
  const bool is_part = config.warmup_steps < 1;
  switch (config.schedule) {
    case Schedule::kCosine:
      break;
    case Schedule::kLinear: {
      const double end = std::min(1.0, is_part ? config.warmup_steps : config.warmup_steps / steps);
      const double left = end < 1 ? std::min(1.0, (1 - progress) / (1 - end)) : 1.0;
      return least + (1 - least) * left;
    }
    case Schedule::kInverseSquareRoot: {
      const double end = std::max(1.0, is_part ? config.warmup_steps * steps : config.warmup_steps);
      return std::max(least, std::sqrt(end / std::max(end, number)));
    }
    case Schedule::kConstant: {
      const double left = 1 - progress;
      return left < config.decay_fraction ? least + (1 - least) * left / config.decay_fraction
                                          : 1.0;
    }
  }
  return least + (1 - least) * 0.5 * (1 + std::cos(kPi * progress));
}

}  // namespace

double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed) {
  double progress = static_cast<double>(step) / static_cast<double>(config.steps);
  if (config.minutes > 0) progress = std::max(progress, elapsed / (60 * config.minutes));
  return std::min(progress, 1.0);
}

double seconds_left(const TrainingConfig& config, std::int64_t step, std::int64_t stop_at,
                    double elapsed, double step_seconds, double validation_seconds) {
  const bool completes = stop_at == 0 || stop_at >= config.steps;
  const std::int64_t end = std::max(step, completes ? config.steps : stop_at);
  // The validation after the last step is due whatever the interval, so it is counted separately.
  const std::int64_t before = completes ? std::max(step, end - 1) : end;
  const std::int64_t validations = before / config.eval_interval - step / config.eval_interval;
  const double left = static_cast<double>(end - step) * step_seconds +
                      static_cast<double>(validations) * validation_seconds;
  if (config.minutes <= 0) return left + (completes ? validation_seconds : 0);
  const double budget = std::max(0.0, 60 * config.minutes - elapsed);
  return left <= budget && !completes ? left : std::min(left, budget) + validation_seconds;
}

double highest_rate_in_warm_up(const TrainingConfig& config) {
  if (config.warmup_steps < static_cast<double>(config.steps)) return 0;
  // A rate rises and may fall again. This many samples find its peak to a thousandth.
  constexpr std::int64_t kSamples = 1000;
  double highest = 0;
  for (std::int64_t i = 0; i <= kSamples; ++i) {
    const auto step = static_cast<std::int64_t>(
        std::llround(static_cast<double>(config.steps - 1) * static_cast<double>(i) / kSamples));
    highest = std::max(highest, learning_rate(config, step, training_progress(config, step, 0)));
  }
  return highest;
}

double learning_rate(const TrainingConfig& config, std::int64_t step, double progress) {
  const double number = static_cast<double>(step) + 1, steps = static_cast<double>(config.steps);
  // A warm-up given as a fraction follows the training's progress, so that a budget in minutes
  // counts.
  const double warm_up = config.warmup_steps == 0 ? 1.0
                         : config.warmup_steps < 1
                             ? std::min(1.0, (progress + 1 / steps) / config.warmup_steps)
                             : std::min(1.0, number / config.warmup_steps);
  return config.learning_rate * ratio_of_schedule(config, number, progress) * warm_up;
}

}  // namespace ql::train
