// Checks that the dropout of a device's steps is a function of seed and step.
#include <vector>

#include "machine/device.h"
#include "nn/dropout.h"
#include "train/training_step.h"
#include "unit/scratch.h"
#include "unit/test_device.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

// Returns the losses of steps that learn nothing, so that only dropout distinguishes their epochs.
// Their number is that after which a GPU replays a recorded step.
std::vector<double> losses(double dropout, std::int64_t epoch) {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(110, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);
  net::Network network = test::tiny_xl();
  network.dropout = dropout;
  network.dropatt = 0;
  network.init_std = 0.5;
  TrainedNetwork learner(network, config, {test::device(), true, /*enqueues_on_cpu=*/true});
  std::vector<double> found;
  for (std::int64_t step = 0; step < 6; ++step) {
    learner.step(streams, epoch * streams.steps_per_epoch() + step, /*learning_rate=*/0);
    found.push_back(learner.finish().loss);
  }
  return found;
}

}  // namespace

TEST_CASE("TrainingStep: a device drops by seed and step") {
  const std::vector<double> plain = losses(0, 0), same_data = losses(0, 3);
  const std::vector<double> first = losses(0.5, 0), again = losses(0.5, 0), other = losses(0.5, 3);
  for (std::size_t step = 0; step < plain.size(); ++step) {
    CAPTURE(step);
    CHECK(same_data[step] == doctest::Approx(plain[step]).epsilon(1e-6));
    CHECK(again[step] == doctest::Approx(first[step]).epsilon(1e-6));
    CHECK(first[step] != doctest::Approx(plain[step]).epsilon(1e-3));
    CHECK(other[step] != doctest::Approx(first[step]).epsilon(1e-3));
  }
}

// Masks on a GPU come from its generator; that of the CPU is also set, and shows how.
TEST_CASE("TrainedNetwork: every step sets the device's generator") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(110, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);
  TrainedNetwork learner(test::tiny_xl(), config, {at::kCPU, true, /*enqueues_on_cpu=*/true});
  for (const std::int64_t step : {0, 1, 5}) {
    learner.step(streams, step, 0.01);
    const at::Tensor found = at::rand({8});
    nn::seed_generator(at::kCPU, {true, static_cast<std::uint64_t>(config.seed),
                                  static_cast<std::uint64_t>(step)});
    CHECK(at::equal(found, at::rand({8})));
  }
}

}  // namespace ql::train
