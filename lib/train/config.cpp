#include "train/config.h"

#include <limits>

#include "base/keys.h"
#include "net/geometry.h"

namespace ql::train {
namespace {

constexpr Range kAboveZero(std::numeric_limits<double>::denorm_min(), Range::kInfinity, "above 0");

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
    row("clip", config.clip, from_zero("0 (no clipping) or more"), kMayChange);
    row("adam_beta1", config.adam_beta1, kBelowOne);
    row("adam_beta2", config.adam_beta2, kBelowOne);
    row("adam_epsilon", config.adam_epsilon, kAboveZero);
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
  return read_keys<TrainingConfig>(json);
}

TrainingConfig training_from_json(const JsonObject& json, Conflicts& conflicts) {
  return read_keys<TrainingConfig>(json, conflicts);
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

Json training_to_json(const TrainingConfig& config) { return write_keys(config); }

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
