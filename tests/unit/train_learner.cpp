#include "train/learner.h"

#include <cmath>

#include "base/error.h"
#include "scratch.h"
#include "torch_doctest.h"
#include "train_support.h"

namespace ql::train {
namespace {

// Loss of the first and of the last steps of a training on a sentence that repeats.
std::pair<double, double> learn(net::Network network, std::int64_t steps) {
  network.dropout = network.dropatt = 0;
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::repeating(2000, 23), 23);
  shard::TokenReader reader(scratch / "data");
  TrainingConfig config = test::tiny_config();
  config.batch = 8;
  Streams streams(reader, config.batch, network.lengths.segment);
  Learner learner(network, config);
  double first = 0, last = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    last = learner.step(streams, step, 0.01).loss;
    first = step == 0 ? last : first;
  }
  return {first, last};
}

}  // namespace

TEST_CASE("a tiny network learns a repeating sentence") {
  for (const net::Network& network : {test::tiny_ql(), test::tiny_xl(), test::tiny_compressive()}) {
    const auto [first, last] = learn(network, 150);
    CAPTURE(net::to_text(network.architecture));
    CHECK(first == doctest::Approx(std::log(23.0)).epsilon(0.1));
    CHECK(last < 0.1 * first);
  }
}

TEST_CASE("an epoch starts with an empty memory") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(60, 23), 23);
  shard::TokenReader reader(scratch / "data");
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);  // parts of 20 tokens: 4 steps an epoch
  REQUIRE(streams.steps_per_epoch() == 4);
  Learner a(test::tiny_xl(), config), b(test::tiny_xl(), config);
  for (std::int64_t step = 0; step < 4; ++step) {
    a.step(streams, step, 0);  // fills the memory, learns nothing
  }
  CHECK(a.memory().states.front().tensor.abs().sum().item<double>() > 0);
  CHECK(a.step(streams, 4, 0).loss == b.step(streams, 4, 0).loss);
  CHECK(a.step(streams, 5, 0).loss == b.step(streams, 5, 0).loss);
}

TEST_CASE("memory is carried from step to step") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::TokenReader reader(scratch / "data");
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);
  Learner with(test::tiny_xl(), config), without(test::tiny_xl(), config);
  with.step(streams, 0, 0);
  CHECK(with.step(streams, 1, 0).loss != without.step(streams, 1, 0).loss);
}

TEST_CASE("a convolution learns by the weight of its reconstruction") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::TokenReader reader(scratch / "data");
  Streams streams(reader, 3, 4);
  const auto convolution_after = [&](std::optional<double> weight) {
    TrainingConfig config = test::tiny_config();
    config.recons_loss_weight = weight;
    Learner learner(test::tiny_compressive(), config);
    for (std::int64_t step = 0; step < 3; ++step) {
      learner.step(streams, step, 0.01);
    }
    for (const nn::NamedTensor& parameter : learner.model().parameters()) {
      if (parameter.name == "layers.1.compress.weight") {
        return parameter.tensor.detach().clone();
      }
    }
    return at::Tensor();
  };
  CHECK(at::equal(convolution_after({}), convolution_after(0.01)));
  CHECK(!at::equal(convolution_after(0.01), convolution_after(0)));
}

TEST_CASE("what is not finite stops the training and leaves the weights alone") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::TokenReader reader(scratch / "data");
  Streams streams(reader, 3, 4);
  Learner learner(test::tiny_xl(), test::tiny_config());
  at::Tensor poisoned = learner.model().parameters().front().tensor;
  {
    const at::NoGradGuard no_gradient;
    poisoned.view(-1)[3] = std::numeric_limits<float>::quiet_NaN();
  }
  const at::Tensor before = learner.model().parameters().back().tensor.clone();
  std::string said;
  try {
    for (std::int64_t step = 6; step < 20; ++step) {
      learner.step(streams, step, 0.1);
    }
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said.find("step 7: the loss is not a number") != std::string::npos);
  CHECK(said.find("learning_rate") != std::string::npos);
  CHECK(at::equal(before, learner.model().parameters().back().tensor));
}

TEST_CASE("the same seed gives the same training, another one another") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::TokenReader reader(scratch / "data");
  TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);
  const auto losses = [&] {
    Learner learner(test::tiny_ql(), config);
    std::vector<double> values;
    for (std::int64_t step = 0; step < 5; ++step) {
      values.push_back(learner.step(streams, step, 0.01).loss);
    }
    return values;
  };
  const auto first = losses();
  CHECK(first == losses());
  config.seed += 1;
  CHECK(first != losses());
}

}  // namespace ql::train
