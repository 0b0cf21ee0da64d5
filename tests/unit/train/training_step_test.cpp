// Tests steps of training on the CPU: learning, memory, documents, and divergences.

#include <cmath>
#include <limits>

#include "base/error.h"
#include "train/training_step.h"
#include "unit/complaint.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

// Returns the loss of the first and of the last steps of a training on a sentence that repeats.
std::pair<double, double> learn(net::Network network, std::int64_t steps) {
  network.dropout = network.dropatt = 0;
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::repeating(2000, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  TrainingConfig config = test::tiny_config();
  config.batch = 8;
  Streams streams(reader, config.batch, network.lengths.segment);
  TrainedNetwork learner(network, config);
  double first = 0, last = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    last = learner.step(streams, step, 0.01).loss;
    first = step == 0 ? last : first;
  }
  return {first, last};
}

}  // namespace

TEST_CASE("TrainedNetwork: a tiny network learns a repeating sentence") {
  std::vector<net::Network> networks{test::tiny_ql(), test::tiny_xl()};
  for (const std::string& pool : all_names<net::Pool>()) {
    networks.push_back(test::tiny_compressive(value_named<net::Pool>(pool, "")));
  }
  for (const net::Network& network : networks) {
    const auto [first, last] = learn(network, 150);
    CAPTURE(net::to_text(network.architecture));
    CAPTURE(net::to_text(network.pool));
    CHECK(first == doctest::Approx(std::log(23.0)).epsilon(0.1));
    CHECK(last < 0.1 * first);
  }
}

TEST_CASE("TrainedNetwork: streams of another batch or segment are refused") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(60, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  const TrainingConfig config = test::tiny_config();
  TrainedNetwork learner(test::tiny_xl(), config);
  const std::int64_t segment = learner.model().network().lengths.segment;
  Streams other_batch(reader, config.batch + 1, segment), other_segment(reader, config.batch, 1),
      part(reader, config.batch, segment, machine::RowRange{0, 1});
  for (Streams* streams : {&other_batch, &other_segment, &part}) {
    CHECK_THROWS_WITH_AS(learner.step(*streams, 0, 0.01), doctest::Contains("expected"),
                         ConfigError);
  }
}

TEST_CASE("TrainedNetwork: an epoch starts with an empty memory") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(60, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);  // parts of 20 tokens: 4 steps an epoch
  REQUIRE(streams.steps_per_epoch() == 4);
  TrainedNetwork a(test::tiny_xl(), config), b(test::tiny_xl(), config);
  for (std::int64_t step = 0; step < 4; ++step) {
    a.step(streams, step, 0);  // fills the memory, learns nothing
  }
  CHECK(a.memory().named().front().tensor.abs().sum().item<double>() > 0);
  CHECK(a.step(streams, 4, 0).loss == b.step(streams, 4, 0).loss);
  CHECK(a.step(streams, 5, 0).loss == b.step(streams, 5, 0).loss);
}

TEST_CASE("TrainedNetwork: memory is carried from step to step") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);
  TrainedNetwork with(test::tiny_xl(), config), without(test::tiny_xl(), config);
  with.step(streams, 0, 0);
  CHECK(with.step(streams, 1, 0).loss != without.step(streams, 1, 0).loss);
}

TEST_CASE("TrainedNetwork: a step of a network that resets its memory knows its documents" *
          doctest::test_suite("numeric")) {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23, "made up", {4, 6, 104, 110, 205});
  shard::MultiReader reader({(scratch / "data").string()});
  net::Network network = test::tiny_ql();
  network.dropout = network.dropatt = network.droppath = 0;
  network.reset_memory_at_documents = true;
  const TrainingConfig config = test::tiny_config();
  Streams streams(reader, 3, 4);
  TrainedNetwork learner(network, config);
  const nn::ModelAtLengths at_lengths(learner.model(), network.lengths);
  nn::Memory memory = at_lengths.start_memory(3);
  // Rows begin with tokens 0, 100 and 200.
  const std::vector<std::int64_t> document_offsets[] = {
      {0, 94, 90}, {0, 0, 94}, {2, 4, 3}, {6, 2, 7}};
  for (std::int64_t step = 0; step < 4; ++step) {
    const at::Tensor ids = at::empty({3, 5}, at::kLong);
    streams.read(step, ids.data_ptr<std::int64_t>());
    nn::StepOptions options;
    options.document_offsets = document_offsets[step];
    const at::Tensor states = at_lengths.forward(ids.narrow(1, 0, 4), memory, options);
    const double expected =
        learner.model().losses(states, ids.narrow(1, 1, 4)).mean().item<double>();
    CHECK(learner.step(streams, step, 0).loss == doctest::Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("step_loss: half of the loss trains on the newer half of every segment" *
          doctest::test_suite("numeric")) {
  for (const std::int64_t segment : {1, 4, 5}) {
    CAPTURE(segment);
    const test::ScratchFolder scratch;
    test::pack(scratch / "data", test::scrambled(300, 23), 23);
    shard::MultiReader reader({(scratch / "data").string()});
    Streams streams(reader, 3, segment);
    net::Network network = test::tiny_xl();
    network.lengths.segment = segment;
    TrainingConfig config = test::tiny_config();
    config.half_loss = true;
    config.clip = 0;
    TrainedNetwork learner(network, config);
    nn::Memory memory = learner.memory();
    // This computes the same step by hand: all losses, those of the older half times zero.
    const at::Tensor ids = at::empty({3, segment + 1}, at::kLong);
    streams.read(0, ids.data_ptr<std::int64_t>());
    const at::Tensor tokens = ids.narrow(1, 0, segment), targets = ids.narrow(1, 1, segment);
    nn::StepOptions options;
    options.training = true;
    options.seed = static_cast<std::uint64_t>(config.seed);
    nn::Model& model = learner.model();
    const at::Tensor states =
        nn::ModelAtLengths(model, network.lengths).forward(tokens, memory, options);
    const at::Tensor mask = at::arange(segment).ge(segment / 2).to(at::kFloat);
    const at::Tensor loss = (model.losses(states, targets) * mask).sum() / (3 * mask.sum());
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const nn::NamedTensor& parameter : model.parameters()) {
      gradients.push_back(parameter.tensor.grad().clone());
      parameter.tensor.mutable_grad() = at::Tensor();
    }
    CHECK(learner.step(streams, 0, 0).loss == doctest::Approx(loss.item<double>()).epsilon(1e-6));
    // The first moment after one step is (1 - beta1) times the gradient.
    const std::vector<nn::NamedTensor> moments = learner.moments();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      CAPTURE(moments[i].name);
      const at::Tensor found = moments[i].tensor / (1 - config.adam.beta1);
      CHECK(at::allclose(found, gradients[i], 1e-4, 1e-7));
    }
  }
}

TEST_CASE("TrainedNetwork: a convolution learns by the weight of its reconstruction") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  Streams streams(reader, 3, 4);
  const auto convolution_after = [&](std::optional<double> weight) {
    TrainingConfig config = test::tiny_config();
    config.recons_loss_weight = weight;
    TrainedNetwork learner(test::tiny_compressive(), config);
    for (std::int64_t step = 0; step < 3; ++step) learner.step(streams, step, 0.01);
    for (const nn::NamedTensor& parameter : learner.model().parameters()) {
      if (parameter.name == "layers.1.compress.weight") return parameter.tensor.detach().clone();
    }
    return at::Tensor();
  };
  CHECK(at::equal(convolution_after({}), convolution_after(0.01)));
  CHECK(!at::equal(convolution_after(0.01), convolution_after(0)));
}

TEST_CASE("TrainedNetwork: a decoder learns together with the network") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::repeating(2000, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  for (const net::Pool pool : {net::Pool::kConvolution, net::Pool::kDilatedConvolution}) {
    net::Network network = test::tiny_compressive(pool, net::CompressionLoss::kAutoEncoding);
    network.init_std = 0.2;
    network.dropout = network.dropatt = 0;
    TrainingConfig config = test::tiny_config();
    config.batch = 8;
    config.recons_loss_weight = 1;
    Streams streams(reader, config.batch, network.lengths.segment);
    TrainedNetwork learner(network, config);
    // Returns the mean square of the decoder's error, as a fraction of that of the memories.
    const auto left_over = [&] {
      nn::Memory memory = learner.memory();
      double squares = 0;
      for (const nn::NamedTensor& state : memory.named()) {
        if (state.name.rfind("memory.", 0) == 0) {  // n_m = n_s: all of it is evicted in this step
          squares +=
              state.tensor.square().mean().item<double>() / static_cast<double>(network.layers());
        }
      }
      at::Tensor loss;
      nn::ModelAtLengths(learner.model(), network.lengths)
          .forward(at::zeros({config.batch, network.lengths.segment}, at::kLong), memory,
                   {true, 1, 1}, &loss);
      return loss.item<double>() / squares;
    };
    double first = 0, last = 0, first_left = 0;
    for (std::int64_t step = 0; step < 150; ++step) {
      last = learner.step(streams, step, 0.01).loss;
      if (step == 1) {
        first = last;
        first_left = left_over();
      }
    }
    CAPTURE(net::to_text(pool));
    CHECK(last < 0.1 * first);
    CHECK(first_left > 0.5);
    CHECK(left_over() < 0.2 * first_left);
  }
}

TEST_CASE(
    "TrainedNetwork: a loss that is not finite stops the training and leaves the weights "
    "unchanged") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  Streams streams(reader, 3, 4);
  TrainedNetwork learner(test::tiny_xl(), test::tiny_config());
  at::Tensor poisoned = learner.model().parameters().front().tensor;
  {
    const at::NoGradGuard no_gradient;
    poisoned.view(-1)[3] = std::numeric_limits<float>::quiet_NaN();
  }
  const at::Tensor before = learner.model().parameters().back().tensor.clone();
  const std::string said = test::complaint([&] {
    for (std::int64_t step = 6; step < 20; ++step) learner.step(streams, step, 0.1);
  });
  CHECK(said.find("step 7: the loss is not a number (loss nan, gradient norm nan); ") == 0);
  CHECK(said.find("learning_rate") != std::string::npos);
  CHECK(at::equal(before, learner.model().parameters().back().tensor));
}

TEST_CASE("TrainedNetwork: a step that diverges changes nothing") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  Streams streams(reader, 3, 4);  // 24 steps an epoch
  for (net::Network network : {test::tiny_ql(), test::tiny_compressive()}) {
    TrainingConfig config = test::tiny_config();
    config.slices = 2;
    TrainedNetwork learner(network, config), other(network, config);
    learner.step(streams, 0, 0.01);
    other.step(streams, 0, 0.01);
    // The loss is too large, once in step 5, and once in the first step of an epoch, whose memory
    // starts as zeros.
    for (const std::int64_t step : {5, 24}) {
      CAPTURE(step);
      learner.set_largest_loss(0.5);
      try {
        learner.step(streams, step, 0.01);
        FAIL("learned");
      } catch (const Diverged& error) {
        CHECK(error.found().step == step);
        CHECK(error.found().loss > 0.5);
        CHECK(error.found().gradient_norm > 0);
        double squares = 0;
        for (const GroupNorm& layer : error.found().layers) squares += layer.norm * layer.norm;
        CHECK(std::sqrt(squares) == doctest::Approx(error.found().gradient_norm.value()));
        CHECK(std::string(error.what()).find("has jumped above 0.5") != std::string::npos);
      }
      learner.set_largest_loss(std::numeric_limits<double>::infinity());
      if (step == 24) other.set_memory(TrainedNetwork(network, config).memory());
      CHECK(learner.step(streams, step + 1, 0.01).loss == other.step(streams, step + 1, 0.01).loss);
      for (std::size_t i = 0; i < learner.moments().size(); ++i) {
        CHECK(at::equal(learner.moments()[i].tensor, other.moments()[i].tensor));
      }
    }
    CHECK(learner.updates() == 3);
  }
}

TEST_CASE("TrainedNetwork: the same seed gives the same training, another seed another one") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(300, 23), 23);
  shard::MultiReader reader({(scratch / "data").string()});
  TrainingConfig config = test::tiny_config();
  Streams streams(reader, config.batch, 4);
  const auto losses = [&] {
    TrainedNetwork learner(test::tiny_ql(), config);
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
