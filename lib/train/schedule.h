// The learning rate: a linear warm-up times the course of a schedule from learning_rate to
// min_lr_ratio * learning_rate.
//
//   cosine               half a cosine over the complete training
//   linear               a line from the end of the warm-up to the end of the training
//   inverse-square-root  sqrt(warm-up / step), but no less than min_lr_ratio; where there is no
//                        warm-up, of one step
//   constant             1, then a line over the last decay_fraction of the training
#pragma once

#include <cstdint>

#include "train/config.h"

namespace ql::train {

// Returns how much of the training is done, from 0 to 1: step / steps, or, with a budget in
// minutes, elapsed / budget when that is more. `elapsed` is in seconds.
double training_progress(const TrainingConfig& config, std::int64_t step, double elapsed);

// Returns the rate for the step that follows `step` finished ones. `progress` comes from
// training_progress(). The inverse square root goes by steps alone.
double learning_rate(const TrainingConfig& config, std::int64_t step, double progress);

// Returns the seconds until the training ends, or stops at step `stop_at` (0: nowhere), when a step
// and a validation take as long as given. `step` steps and `elapsed` seconds are done. The
// validation after the last step comes on top of a budget.
double seconds_left(const TrainingConfig& config, std::int64_t step, std::int64_t stop_at,
                    double elapsed, double step_seconds, double validation_seconds);

// Returns the highest rate of a training that goes by its steps and ends in its warm-up; 0 for
// others.
double highest_rate_in_warm_up(const TrainingConfig& config);

}  // namespace ql::train
