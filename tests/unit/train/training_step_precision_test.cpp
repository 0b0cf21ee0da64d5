// Tests rounded products in training and validation: by LibTorch's autocast, which also works on
// the CPU, and by our own kernels.
#include <cmath>
#include <utility>
#include <vector>

#include "eval/evaluate.h"
#include "machine/device.h"
#include "unit/plain_bfloat16.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"
#include "unit/train_workplace.h"
#include "weights/weights.h"

namespace ql::train {
namespace {

bool is_near(double a, double b) { return a != b && std::abs(a - b) < 0.02 * std::abs(b); }

double loss_of_steps(machine::Precision precision) {
  const test::Workplace place(test::tiny_ql());
  TrainingConfig config = place.task.config;
  config.precision = precision;
  shard::MultiReader reader({(place.scratch / "data").string()});
  Streams streams(reader, config.batch, 4);
  TrainedNetwork learner(test::tiny_ql(), config, {at::kCPU, true, /*enqueues_on_cpu=*/true});
  for (std::int64_t step = 0; step < 3; ++step) learner.step(streams, step, 0.01);
  return learner.finish().loss;
}

double loss_of_checkpoint(const test::Workplace& place, machine::Precision precision) {
  const nn::Model model =
      weights::load_model(place.task.run / "best", at::TensorOptions(at::kFloat));
  shard::MultiReader validation({(place.scratch / "valid").string()});
  eval::EvaluationOptions options;
  options.lengths = place.task.config.evaluation_lengths(place.task.network.lengths);
  const nn::ModelPrecision in_precision(model, precision);
  return eval::evaluate(model, eval::source_of(validation), options).mean();
}

}  // namespace

TEST_CASE("TrainingStep: a device's step computes in its precision") {
  const machine::OperationsOnly operations;
  const test::PlainBfloat16 plain;
  const double exact = loss_of_steps(machine::Precision::kFloat32);
  CHECK(loss_of_steps(machine::Precision::kFloat32) == exact);
  CHECK(is_near(loss_of_steps(machine::Precision::kBfloat16), exact));
}

TEST_CASE("train: a validation computes in the training's precision") {
  test::Workplace place(test::tiny_ql());
  place.task.config.precision = machine::Precision::kBfloat16;
  place.task.stop_at = place.task.config.eval_interval;
  const double loss = place.train().best.value().loss;
  CHECK(loss_of_checkpoint(place, machine::Precision::kBfloat16) == loss);
  CHECK(is_near(loss_of_checkpoint(place, machine::Precision::kFloat32), loss));
}

TEST_CASE("train: bfloat16 has the same bits for any threads, and a resume continues exactly" *
          doctest::test_suite("numeric")) {
  for (const net::Network& network : {test::tiny_ql(), test::tiny_xl(), test::tiny_compressive()}) {
    CAPTURE(net::to_text(network.architecture));
    test::Workplace whole(network), parts(network), exact(network);
    whole.task.config.slices = parts.task.config.slices = exact.task.config.slices = 2;
    whole.task.config.precision = parts.task.config.precision = machine::Precision::kBfloat16;
    const auto train = [](test::Workplace& place, int threads, std::int64_t stop) {
      const test::WithThreads with_threads(threads);
      place.task.stop_at = stop;
      const double loss = place.train().best.value().loss;
      place.task.start = Start::kResume;
      return loss;
    };
    const double rounded = train(whole, 1, 0);
    train(parts, 2, 7);
    CHECK(train(parts, 3, 0) == rounded);
    test::check_same_result(whole, parts);
    CHECK(is_near(rounded, train(exact, 2, 0)));
  }
}

// There is enough work for all threads: a product has more than 256 rows, the softmax three panels,
// and the validation eight pieces.
TEST_CASE("TrainedNetwork: threads that compute one slice together round the same operands" *
          doctest::test_suite("numeric")) {
  constexpr std::uint32_t kVocabulary = 2500;
  net::Network network = test::tiny_ql();
  network.vocab_size = kVocabulary;
  network.init_std = 0.3;  // so that rounding shows in the losses
  const auto loss = [&](machine::Precision precision, int threads) {
    const test::WithThreads with_threads(threads);
    test::Workplace place(network);
    test::pack(place.scratch / "many", test::scrambled(6000, kVocabulary), kVocabulary);
    test::pack(place.scratch / "few", test::scrambled(2500, kVocabulary), kVocabulary);
    place.task.config.batch = 80;
    place.task.config.slices = 1;
    place.task.config.steps = 3;
    place.task.config.warmup_steps = 0;
    place.task.config.precision = precision;
    return place.train("many", "few").best.value().loss;
  };
  const double by_one = loss(machine::Precision::kBfloat16, 1);
  const double rounding = std::abs(by_one - loss(machine::Precision::kFloat32, 1));
  CHECK(rounding > 0);
  CHECK(rounding < 0.02 * by_one);
  for (const int threads : {2, 3}) {
    CAPTURE(threads);
    const double difference = std::abs(loss(machine::Precision::kBfloat16, threads) - by_one);
    CHECK(difference < 0.02 * rounding);
  }
}

}  // namespace ql::train
