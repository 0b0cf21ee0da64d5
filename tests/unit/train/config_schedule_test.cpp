// Tests the learning rate, the progress and the remaining time of a training.

#include <doctest/doctest.h>

#include <cmath>

#include "train/config.h"
#include "unit/train_support.h"

namespace ql::train {

TEST_CASE("learning_rate: the learning rate warms up in a line and falls along a cosine") {
  TrainingConfig config = test::tiny_config();
  config.learning_rate = 2.0;
  config.min_lr_ratio = 0.25;
  config.steps = 1000;
  config.warmup_steps = 10;
  const auto rate = [&](std::int64_t step) {
    return learning_rate(config, step, training_progress(config, step, 0));
  };
  CHECK(rate(0) == doctest::Approx(0.2).epsilon(1e-4));
  CHECK(rate(4) == doctest::Approx(1.0).epsilon(1e-3));
  CHECK(rate(9) > rate(8));
  CHECK(rate(10) < rate(9));
  CHECK(rate(500) == doctest::Approx(0.5 * (2.0 + 0.5)));
  CHECK(rate(250) == doctest::Approx(0.5 + 1.5 * 0.5 * (1 + std::sqrt(0.5))));
  CHECK(rate(1000) == doctest::Approx(0.5));
}

TEST_CASE("learning_rate: without warm-up the first step has the full rate") {
  TrainingConfig config = test::tiny_config();
  config.warmup_steps = 0;
  CHECK(learning_rate(config, 0, 0) == config.learning_rate);
}

TEST_CASE("learning_rate: every schedule has its course") {
  struct Point {
    Schedule schedule;
    std::int64_t step;
    double rate;
  };
  TrainingConfig config = test::tiny_config();
  config.learning_rate = 2.0;
  config.min_lr_ratio = 0.1;
  config.steps = 1000;
  config.warmup_steps = 100;
  config.decay_fraction = 0.25;
  const std::vector<Point> points = {
      {Schedule::kLinear, 49, 1.0},   // half of the warm-up
      {Schedule::kLinear, 100, 2.0},  // the warm-up is over
      {Schedule::kLinear, 550, 1.1},  // half of the way from 2 to 0.2
      {Schedule::kLinear, 1000, 0.2},
      {Schedule::kInverseSquareRoot, 49, 1.0},
      {Schedule::kInverseSquareRoot, 99, 2.0},
      {Schedule::kInverseSquareRoot, 399, 1.0},        // step 400: sqrt(100 / 400)
      {Schedule::kInverseSquareRoot, 899, 2.0 / 3.0},  // step 900: sqrt(100 / 900)
      {Schedule::kConstant, 49, 1.0},
      {Schedule::kConstant, 99, 2.0},
      {Schedule::kConstant, 750, 2.0},
      {Schedule::kConstant, 875, 1.1},
      {Schedule::kConstant, 1000, 0.2},
  };
  for (const Point& point : points) {
    CAPTURE(to_text(point.schedule));
    CAPTURE(point.step);
    config.schedule = point.schedule;
    CHECK(learning_rate(config, point.step, training_progress(config, point.step, 0)) ==
          doctest::Approx(point.rate).epsilon(1e-12));
  }
  config.schedule = Schedule::kInverseSquareRoot;
  config.min_lr_ratio = 0.5;  // the lower limit
  CHECK(learning_rate(config, 899, 0.899) == 1.0);
  config.min_lr_ratio = 0;
  config.warmup_steps = 0;
  CHECK(learning_rate(config, 0, 0) == 2.0);
  CHECK(learning_rate(config, 24, 0.024) == doctest::Approx(2.0 / 5));
  config.schedule = Schedule::kConstant;
  config.decay_fraction = 0;
  CHECK(learning_rate(config, 999, 0.999) == 2.0);
}

TEST_CASE("learning_rate: a warm-up may be a fraction of the training") {
  TrainingConfig steps = test::tiny_config(), part = steps;
  steps.steps = part.steps = 1000;
  steps.warmup_steps = 50;
  part.warmup_steps = 0.05;
  for (const char* name : {"cosine", "linear", "inverse-square-root", "constant"}) {
    CAPTURE(name);
    steps.schedule = part.schedule = value_named<Schedule>(name, "test");
    for (const std::int64_t step : {0, 1, 30, 48, 49, 50, 51, 500, 999}) {
      CAPTURE(step);
      const double progress = training_progress(steps, step, 0);
      CHECK(learning_rate(part, step, progress) ==
            doctest::Approx(learning_rate(steps, step, progress)).epsilon(1e-12));
    }
  }
  // If a budget is spent faster than the steps, the warm-up ends with it.
  part.schedule = Schedule::kConstant;
  part.minutes = 10;
  const double progress = training_progress(part, 3, 15);  // a 40th, half of the warm-up
  CHECK(learning_rate(part, 3, progress) ==
        doctest::Approx(part.learning_rate * (0.025 + 0.001) / 0.05));
}

TEST_CASE("training_progress: is the larger of steps and budget") {
  TrainingConfig config = test::tiny_config();
  config.steps = 100;
  CHECK(training_progress(config, 25, 1e6) == 0.25);
  config.minutes = 2;
  CHECK(training_progress(config, 25, 12) == 0.25);
  CHECK(training_progress(config, 25, 60) == 0.5);
  CHECK(training_progress(config, 25, 1000) == 1.0);
  CHECK(training_progress(config, 100, 0) == 1.0);
}

TEST_CASE("highest_rate_in_warm_up: the highest rate of a warm-up that does not end is known") {
  TrainingConfig config = test::tiny_config();
  config.learning_rate = 2;
  config.schedule = Schedule::kConstant;
  config.decay_fraction = 0;
  config.steps = 100;
  config.warmup_steps = 400;
  CHECK(highest_rate_in_warm_up(config) == doctest::Approx(0.5));
  config.schedule = Schedule::kCosine;
  config.min_lr_ratio = 0;
  // This computes the highest of (s + 1) / 400 (1 + cos(pi s / 100)).
  double highest = 0;
  for (int s = 0; s < 100; ++s) {
    highest = std::max(highest, (s + 1) / 400.0 * (1 + std::cos(std::acos(-1.0) * s / 100)));
  }
  CHECK(highest_rate_in_warm_up(config) == doctest::Approx(highest).epsilon(1e-3));
  config.warmup_steps = 99;
  CHECK(highest_rate_in_warm_up(config) == 0);
  config.warmup_steps = 0.99;
  CHECK(highest_rate_in_warm_up(config) == 0);
}

TEST_CASE("seconds_left: includes the remaining validations, and ends where the training does") {
  TrainingConfig config = test::tiny_config();
  config.steps = 100;
  config.eval_interval = 30;
  // 40 steps and the validations after 90 and 100
  CHECK(seconds_left(config, 60, 0, 1000, 0.5, 7) == 40 * 0.5 + 2 * 7);
  CHECK(seconds_left(config, 59, 0, 1000, 0.5, 7) == 41 * 0.5 + 3 * 7);
  config.eval_interval = 50;  // the last one is due in any case, and only once
  CHECK(seconds_left(config, 60, 0, 1000, 0.5, 7) == 40 * 0.5 + 7);
  CHECK(seconds_left(config, 60, 200, 1000, 0.5, 7) == 40 * 0.5 + 7);
  CHECK(seconds_left(config, 60, 80, 1000, 0.5, 7) == 20 * 0.5);
  CHECK(seconds_left(config, 40, 80, 1000, 0.5, 7) == 40 * 0.5 + 7);
  CHECK(seconds_left(config, 90, 80, 1000, 0.5, 7) == 0);
  CHECK(seconds_left(config, 100, 0, 1000, 0.5, 7) == 7);
  config.minutes = 1;  // the budget, and the validation after it
  CHECK(seconds_left(config, 60, 0, 55, 0.5, 7) == 5 + 7);
  CHECK(seconds_left(config, 60, 0, 61, 0.5, 7) == 7);
  CHECK(seconds_left(config, 60, 0, 10, 0.5, 7) == 40 * 0.5 + 7);
  CHECK(seconds_left(config, 60, 80, 10, 0.5, 7) == 20 * 0.5);
}

}  // namespace ql::train
