#include "train/config.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/keys.h"
#include "net/geometry.h"

namespace ql::train {
namespace {

constexpr Range kAboveZero(std::numeric_limits<double>::denorm_min(), Range::kInfinity, "above 0");

// In float32 a smaller one may be 0, and 0 / 0 is what a weight without a gradient would change by.
constexpr Range kSmallest(std::numeric_limits<float>::min(), Range::kInfinity,
                          "at least 1.1754944e-38, the smallest normal float32");

// `words` says what 0 means.
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

}  // namespace ql::train
