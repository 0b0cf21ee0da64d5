#include "train/schedule.h"

#include <algorithm>
#include <cmath>

namespace ql::train {

double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed) {
  double progress = static_cast<double>(step) / static_cast<double>(config.steps);
  if (config.minutes > 0) progress = std::max(progress, elapsed / (60 * config.minutes));
  return std::min(progress, 1.0);
}

double learning_rate(const TrainingConfig& config, std::int64_t step, double progress) {
  constexpr double kPi = 3.14159265358979323846;
  const double ratio =
      config.min_lr_ratio + (1 - config.min_lr_ratio) * 0.5 * (1 + std::cos(kPi * progress));
  const double warm_up = step < config.warmup_steps ? static_cast<double>(step + 1) /
                                                          static_cast<double>(config.warmup_steps)
                                                    : 1.0;
  return config.learning_rate * ratio * warm_up;
}

}  // namespace ql::train
