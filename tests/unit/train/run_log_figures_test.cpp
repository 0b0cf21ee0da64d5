// Compares the figures of a training's log with those of a network that the test trains itself.
#include <string>
#include <vector>

#include "train/config.h"
#include "train/training_step.h"
#include "unit/torch_doctest.h"
#include "unit/train_workplace.h"

namespace ql::train {
namespace {

std::vector<Json> records(const test::Workplace& place, const std::string& kind) {
  std::vector<Json> found;
  for (const Json& record : place.log()) {
    if (record["kind"] == kind) found.push_back(record);
  }
  return found;
}

}  // namespace

TEST_CASE("RunLog: a record has the means of the steps since the last one") {
  test::Workplace place(test::tiny_xl());
  TrainingConfig& config = place.task.config;
  config.slices = config.passes = 1;
  config.log_interval = 4;
  place.train();
  const std::vector<Json> found = records(place, "train");
  REQUIRE(found.size() == 5);

  shard::MultiReader reader({(place.scratch / "data").string()});
  Streams streams(reader, config.batch, 4);
  TrainedNetwork learner(place.task.network, config);
  for (std::int64_t record = 0; record < 5; ++record) {
    double loss = 0, norm = 0;
    for (std::int64_t step = 4 * record; step < 4 * record + 4; ++step) {
      const double progress = training_progress(config, step, 0);
      const StepSums result = learner.step(streams, step, learning_rate(config, step, progress));
      loss += result.loss / 4;
      norm += result.gradient_norm / 4;
    }
    const Json& written = found[static_cast<std::size_t>(record)];
    CHECK(written["step"] == 4 * record + 4);
    CHECK(written["loss"].get<double>() == doctest::Approx(loss).epsilon(1e-5));
    CHECK(written["gradient_norm"].get<double>() == doctest::Approx(norm).epsilon(1e-4));
    // The epoch is that of the last step: the record of step 16 ends the first epoch.
    CHECK(written["epoch"] == (record < 4 ? 0 : 1));
  }
}

TEST_CASE("train: a validation that is not better than the best one is not the best") {
  test::Workplace place(test::tiny_xl());
  place.task.config.learning_rate = 1e-30;  // so small that no loss changes
  const TrainingState end = place.train();
  std::vector<bool> best;
  for (const Json& record : records(place, "validation")) {
    best.push_back(record["best"].get<bool>());
  }
  CHECK(best == std::vector<bool>{true, false, false});
  CHECK(end.best.value().step == 7);
}

}  // namespace ql::train
