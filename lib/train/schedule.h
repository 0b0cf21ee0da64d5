// The learning rate: linear warm-up times a cosine from learning_rate to min_lr_ratio *
// learning_rate.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace ql::train {

// How much of the training is done, from 0 to 1: step / steps, or, with a budget in minutes,
// elapsed / budget when that is more. `elapsed` in seconds.
double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed);

// The rate for the step that follows `step` finished ones. `progress` from training_progress.
double learning_rate(const TrainingConfig& config, std::int64_t step, double progress);

}  // namespace ql::train
