#include "train/schedule.h"

#include <doctest/doctest.h>

#include <cmath>

#include "train_support.h"

namespace ql::train {

TEST_CASE("the learning rate warms up in a line and falls along a cosine") {
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

TEST_CASE("without warm-up the first step has the full rate") {
  TrainingConfig config = test::tiny_config();
  config.warmup_steps = 0;
  CHECK(learning_rate(config, 0, 0) == config.learning_rate);
}

TEST_CASE("progress is the larger of steps and budget") {
  TrainingConfig config = test::tiny_config();
  config.steps = 100;
  CHECK(training_progress(config, 25, 1e6) == 0.25);
  config.minutes = 2;
  CHECK(training_progress(config, 25, 12) == 0.25);
  CHECK(training_progress(config, 25, 60) == 0.5);
  CHECK(training_progress(config, 25, 1000) == 1.0);
  CHECK(training_progress(config, 100, 0) == 1.0);
}

}  // namespace ql::train
