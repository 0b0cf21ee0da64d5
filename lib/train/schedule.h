// The learning rate: linear warm-up times a cosine from learning_rate to min_lr_ratio *
// learning_rate.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace ql::train {

// Returns how much of the training is done, from 0 to 1: step / steps, or, with a budget in
// minutes, elapsed / budget when that is more. `elapsed` is in seconds.
double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed);

// Returns the rate for the step that follows `step` finished ones. `progress` comes from
// training_progress().
double learning_rate(const TrainingConfig& config, std::int64_t step, double progress);

}  // namespace ql::train
