// Checks how the estimate of a training's memory grows, and which passes fit a limit.
#include "train/estimate.h"

#include <cstdint>

#include "eval/chunk_size.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"

namespace ql::train {

TEST_CASE("choose_passes: less memory takes more passes, and the estimate falls with them") {
  const net::Network network = test::tiny_xl();
  TrainingConfig config = test::tiny_config();
  config.batch = 32;
  config.slices = 2;
  CHECK(choose_passes(network, config, 2, 0, std::int64_t{1} << 40) == 1);
  CHECK(choose_passes(network, config, 2, 0, 0) == 16);
  std::int64_t passes_before = 16;
  for (config.passes = 2; config.passes <= 16; config.passes *= 2) {
    const MemoryEstimate estimate = estimate_memory(network, config, 2);
    const std::int64_t enough = estimate.total() - estimate.process;
    const std::int64_t chosen = choose_passes(network, config, 2, 0, enough);
    CHECK(chosen <= config.passes);
    CHECK(fits(network, config, 2, 0, enough));
    TrainingConfig other = config;
    other.passes = config.passes / 2;
    CHECK(estimate.activations < estimate_memory(network, other, 2).activations);
    passes_before = chosen;
  }
  CHECK(passes_before > 1);
}

TEST_CASE("choose_passes: finds the fewest passes that fit, fast in a batch of any size") {
  net::Network network = test::tiny_ql();
  network.lengths = {64, 64, 0};
  TrainingConfig config = test::tiny_config();
  config.batch = 37;
  config.slices = 1;
  const auto needs = [&](std::int64_t passes) {
    config.passes = passes;
    const MemoryEstimate estimate = estimate_memory(network, config, 2);
    return estimate.total() - estimate.process;
  };
  for (const std::int64_t batch : {37, 36}) {
    config.batch = batch;
    for (std::int64_t passes = 1; passes <= batch; ++passes) {
      const std::int64_t available = needs(passes);
      std::int64_t fewest = 1;
      while (needs(fewest) > available) ++fewest;
      CAPTURE(passes);
      CHECK(choose_passes(network, config, 2, 0, available) == fewest);
    }
  }
  config.batch = 1 << 20;
  CHECK(choose_passes(network, config, 2, 0, 0) == config.batch);
}

TEST_CASE(
    "estimate_memory: linear attention is in proportion to the window, softmax to all pairs") {
  const auto growth = [](net::Attention attention) {
    net::Network network = test::tiny_xl();
    network.attention = attention;
    network.dropatt = 0;
    const auto activations = [&](std::int64_t length) {
      network.lengths = {length, length, 0};
      return static_cast<double>(estimate_memory(network, test::tiny_config(), 2).activations);
    };
    return activations(8192) / activations(4096);
  };
  CHECK(growth(net::Attention::kLinear) < 2.05);
  CHECK(growth(net::Attention::kSoftmax) > 3.5);
  // The same holds for a segment that is evaluated.
  const auto growth_of_chunk = [](net::Attention attention) {
    net::Network network = test::tiny_xl();
    network.attention = attention;
    network.dropatt = 0;
    const auto bytes = [&](std::int64_t length) {
      network.lengths = {length, length, 0};
      return eval::bytes_per_segment(network, net::make_geometry(network, network.lengths));
    };
    return bytes(8192) / bytes(4096);
  };
  CHECK(growth_of_chunk(net::Attention::kLinear) < 2.05);
  CHECK(growth_of_chunk(net::Attention::kSoftmax) > 3.5);
}

TEST_CASE("estimate_memory: has a chunk of the validation data, at the lengths of validation") {
  const net::Network network = test::tiny_xl();
  TrainingConfig config = test::tiny_config();
  const auto estimate = [&](std::int64_t tokens) {
    return estimate_memory(network, config, 2, {0, tokens});
  };
  CHECK(estimate(0).validation == 0);
  const std::int64_t little = estimate(2000).validation, twice = estimate(4000).validation;
  CHECK(little > 0);
  CHECK(twice > little);
  CHECK(estimate(6000).validation - twice == twice - little);
  // However much data there is, a chunk takes no more than 128 MiB.
  const std::int64_t much = estimate(std::int64_t{1} << 40).validation;
  CHECK(much > 2 * little);
  CHECK(much <= std::int64_t{128} << 20);
  // The chunk is computed between steps, when their gradients and activations are freed.
  const auto beside = [](const MemoryEstimate& of) { return of.total() - of.process; };
  CHECK(beside(estimate(10)) == beside(estimate(0)));
  CHECK(beside(estimate(std::int64_t{1} << 40)) > beside(estimate(0)));
  config.eval_memory = 64;
  CHECK(estimate(1000).validation > 0);
  config.eval_memory = 65536;
  CHECK(estimate(std::int64_t{1} << 40).validation > 0);
}

TEST_CASE("estimate_memory: with bfloat16 every weight has a rounded copy") {
  const net::Network network = test::tiny_xl();
  const auto parameters = [&](machine::Precision precision) {
    TrainingConfig config = test::tiny_config();
    config.precision = precision;
    return estimate_memory(network, config, 2).parameters;
  };
  const std::int64_t weights = net::cost(network, network.lengths).parameters;
  CHECK(parameters(machine::Precision::kFloat32) == 3 * 4 * weights);  // weights and two moments
  CHECK(parameters(machine::Precision::kBfloat16) == (3 * 4 + 2) * weights);
}

TEST_CASE("estimate_memory: a compression that learns keeps its states and its attention") {
  const auto activations = [](net::Pool pool, net::CompressionLoss loss) {
    net::Network network = test::tiny_compressive(pool, loss);
    network.lengths = {64, 64, 32};
    TrainingConfig config = test::tiny_config();
    config.slices = 1;
    return estimate_memory(network, config, 1).activations;
  };
  const net::Network network = test::tiny_compressive();
  const std::int64_t layers = network.scales.front(), rows = test::tiny_config().batch;
  const std::int64_t compressed = 64 / network.rate, keys = network.n_head * network.d_head;
  // Compressed states; keys and values of these and of the 64 states; probabilities of attention.
  const std::int64_t attention = compressed * network.d_model + 2 * (compressed + 64) * keys +
                                 network.n_head * 64 * compressed;
  // Compressed states; the decoder's output for the 64 states.
  const std::int64_t coding = (compressed + 64) * network.d_model;
  const std::int64_t none =
      activations(net::Pool::kMax, net::CompressionLoss::kAttentionReconstruction);
  CHECK(activations(net::Pool::kConvolution, net::CompressionLoss::kAttentionReconstruction) -
            none >=
        4 * rows * layers * attention);
  CHECK(activations(net::Pool::kConvolution, net::CompressionLoss::kAutoEncoding) - none >=
        4 * rows * layers * coding);
}

TEST_CASE("estimate_memory: every row of a training keeps a frame of the data") {
  const net::Network network = test::tiny_xl();
  TrainingConfig config = test::tiny_config();
  config.batch = 32;
  const auto estimate = [&](std::int64_t frame_bytes) {
    const MemoryEstimate found = estimate_memory(network, config, 2, {frame_bytes, 0});
    return found.total() - found.process;
  };
  CHECK(estimate(1 << 18) - estimate(0) == 32 << 18);
  CHECK(choose_passes(network, config, 2, 1 << 18, estimate(0)) == 32);
}

}  // namespace ql::train
