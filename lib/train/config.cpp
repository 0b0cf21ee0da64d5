// Reads and writes the settings of a training run as JSON, finds their conflicts, and computes the
// learning rate.

#include "train/config.h"

#include <fmt/format.h>

#include <cmath>

#include "net/geometry.h"

namespace ql::train {

net::Lengths TrainingConfig::evaluation_lengths(const net::Lengths& training) const {
  net::Lengths lengths = training;
  lengths.segment = eval_segment.value_or(training.segment);
  lengths.memory = eval_memory.value_or(training.memory);
  lengths.compressed_memory = eval_compressed_memory.value_or(training.compressed_memory);
  return lengths;
}

std::vector<std::string> training_keys() { return key_names<TrainingConfig>(); }

TrainingConfig training_from_json(const JsonObject& json, Conflicts& conflicts) {
  const auto config = read_keys<TrainingConfig>(json, conflicts);
  const double warm_up = config.warmup_steps;
  if (warm_up > 1 && (warm_up != std::floor(warm_up) || warm_up > 0x1p53)) {
    conflicts.add(json.where(),
                  fmt::format("warmup_steps is {}, but must be a whole number of steps up to 2^53, "
                              "or a fraction of the training below 1",
                              warm_up));
  }
  return config;
}

void find_conflicts(const TrainingConfig& config, const net::Network& network,
                    Conflicts& conflicts) {
  const net::Lengths lengths = config.evaluation_lengths(network.lengths);
  if (!(lengths == network.lengths)) {
    net::find_conflicts(network, lengths, "lengths of validation", conflicts);
  }
}

std::string why_unread(const std::string& key, const TrainingConfig& config,
                       const net::Network& network) {
  const bool compresses =
      network.scales.size() > 1 || network.architecture == net::Architecture::kCompressive;
  if ((key == "rate" || key == "pool") && !compresses) {
    return "the network has one scale, so nothing is compressed";
  }
  if (key == "recons_loss_weight" && !network.learns_compression()) {
    return "the network has no compression that learns";
  }
  if (key == "untie_r" && !net::row_of(network.encoding).has(net::EncodingRow::kBiases)) {
    return fmt::format("encoding {} has no biases", to_text(network.encoding));
  }
  if (key == "proj_same_dim" && network.div_val == 1) {
    return "div_val is 1, so all embeddings have one width";
  }
  if (key == "decay_fraction" && config.schedule != Schedule::kConstant) {
    return fmt::format("schedule is {}", to_text(config.schedule));
  }
  if (key == "weight_decay_on" && config.adam.weight_decay == 0) return "weight_decay is 0";
  return "";
}

Json training_to_json(const TrainingConfig& config) {
  Json json = write_keys(config);
  if (config.warmup_steps == std::floor(config.warmup_steps)) {
    json["warmup_steps"] = static_cast<std::int64_t>(config.warmup_steps);
  }
  return json;
}

// Returns the schedule's factor: the rate without warm-up, divided by the highest rate. `number` is
// the number of the next step, from 1.
static double ratio_of_schedule(const TrainingConfig& config, double number, double progress) {
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

double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed) {
  double progress = static_cast<double>(step) / static_cast<double>(config.steps);
  if (config.minutes > 0) progress = std::max(progress, elapsed / (60 * config.minutes));
  return std::min(progress, 1.0);
}

double seconds_left(const TrainingConfig& config, std::int64_t step, std::int64_t stop_at,
                    double elapsed, double step_seconds, double validation_seconds) {
  const bool completes = stop_at == 0 || stop_at >= config.steps;
  const std::int64_t end = std::max(step, completes ? config.steps : stop_at);
  // The validation after the last step is due for any eval_interval, so it is counted separately.
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
  // The rate rises and may then fall. This many samples find the place of its peak to a thousandth
  // of the run.
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
  // A warm-up given as a fraction follows `progress`, so that it also suits a budget in minutes.
  const double warm_up = config.warmup_steps == 0 ? 1.0
                         : config.warmup_steps < 1
                             ? std::min(1.0, (progress + 1 / steps) / config.warmup_steps)
                             : std::min(1.0, number / config.warmup_steps);
  return config.learning_rate * ratio_of_schedule(config, number, progress) * warm_up;
}

}  // namespace ql::train
