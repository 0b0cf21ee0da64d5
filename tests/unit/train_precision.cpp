// Autocast in training and validation. The CPU knows it as well, for ATen's operations.
#include <cmath>

#include "machine/device.h"
#include "plain_bfloat16.h"
#include "torch_doctest.h"
#include "train/trained_on_device.h"
#include "train_support.h"
#include "train_workplace.h"

namespace ql::train {
namespace {

bool is_near(double a, double b) { return a != b && std::abs(a - b) < 0.02 * std::abs(b); }

double loss_of_steps(machine::Precision precision) {
  const test::Workplace place(test::tiny_ql());
  TrainingConfig config = place.task.config;
  config.precision = precision;
  shard::TokenReader reader(place.scratch / "data");
  Streams streams(reader, config.batch, 4);
  TrainedOnDevice learner(test::tiny_ql(), config, {});
  for (std::int64_t step = 0; step < 3; ++step) learner.step(streams, step, 0.01);
  return learner.finish().loss;
}

double validation_loss(machine::Precision precision) {
  test::Workplace place(test::tiny_ql());
  place.task.config.precision = precision;
  place.task.stop_at = place.task.config.eval_interval;
  return place.train().best.value().loss;
}

}  // namespace

TEST_CASE("a device's step computes in its precision") {
  const machine::OperationsOnly operations;
  const test::PlainBfloat16 plain;
  const double exact = loss_of_steps(machine::Precision::kFloat32);
  CHECK(loss_of_steps(machine::Precision::kFloat32) == exact);
  CHECK(is_near(loss_of_steps(machine::Precision::kBfloat16), exact));
}

// A training on the CPU ignores the precision in its steps, so the weights are the same.
TEST_CASE("a validation computes in the training's precision") {
  const machine::OperationsOnly operations;
  const test::PlainBfloat16 plain;
  const double exact = validation_loss(machine::Precision::kFloat32);
  CHECK(validation_loss(machine::Precision::kFloat32) == exact);
  CHECK(is_near(validation_loss(machine::Precision::kBfloat16), exact));
}

}  // namespace ql::train
