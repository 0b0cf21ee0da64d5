// Compares a step in slices (micro-batches) and passes (accumulation steps) with the same step in
// one piece.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "eval/columns.h"
#include "train/estimate.h"
#include "train/gradients.h"
#include "train/trained_network.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

struct TrainedInSlices {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
};

TrainedInSlices run(const net::Network& network, std::int64_t slices, std::int64_t passes,
                    int threads, std::int64_t steps = 4) {
  const test::ScratchFolder scratch;
  // Rows of 85 tokens: in each a different number of documents begins, at other places.
  test::pack(scratch / "data", test::scrambled(600, 23), 23, "made up",
             {50, 77, 90, 95, 177, 258, 261, 300, 342, 350, 431, 434, 515, 519});
  shard::MultiReader reader({(scratch / "data").string()});
  TrainingConfig config = test::tiny_config();
  config.batch = 7;
  config.slices = slices;
  config.passes = passes;
  Streams streams(reader, config.batch, network.lengths.segment);
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  CpuTrainer learner(network, config);
  TrainedInSlices trained;
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepResult result = learner.step(streams, step, 0.01);
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  }
  for (const nn::NamedTensor& parameter : learner.model().parameters()) {
    trained.weights.push_back(parameter.tensor.detach().clone());
  }
  for (const nn::NamedTensor& state : learner.memory().named()) {
    trained.weights.push_back(state.tensor);
  }
  at::set_num_threads(before);
  return trained;
}

void check_equal(const TrainedInSlices& a, const TrainedInSlices& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  REQUIRE(a.weights.size() == b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) CHECK(at::equal(a.weights[i], b.weights[i]));
}

}  // namespace

TEST_CASE("split_rows: splits into nearly equal parts, in order") {
  for (const std::int64_t batch : {1, 2, 7, 128}) {
    for (const std::int64_t slices : {0, 1, 2, 3, 8}) {
      for (const std::int64_t passes : {0, 1, 2, 5}) {
        std::int64_t next = 0, smallest = batch, largest = 0;
        for (const Slice& slice : split_rows(batch, slices, passes)) {
          std::int64_t rows = 0;
          for (const RowRange& range : slice) {
            CHECK(range.first == next);
            CHECK(range.count >= 1);
            next += range.count;
            rows += range.count;
          }
          CHECK(slice.size() ==
                static_cast<std::size_t>(std::clamp<std::int64_t>(passes, 1, rows)));
          smallest = std::min(smallest, rows);
          largest = std::max(largest, rows);
        }
        CHECK(next == batch);
        CHECK(largest - smallest <= 1);
      }
    }
  }
}

TEST_CASE("choose_slices: one and two threads have the same slices, more have as many as threads") {
  CHECK(choose_slices(128, 8, 1) == 2);
  CHECK(choose_slices(128, 8, 2) == 2);
  CHECK(choose_slices(128, 8, 16) == 16);
  CHECK(choose_slices(128, 8, 64) == 16);  // of 64 tokens
  CHECK(choose_slices(1, 4096, 8) == 1);   // a row is not cut
  CHECK(choose_slices(4, 4, 8) == 1);
  CHECK(choose_slices(3, 50, 2) == 1);  // two rows and one would leave 50 tokens
  CHECK(choose_slices(7, 40, 4) == 3);
}

TEST_CASE("choose_passes: less memory takes more passes, and the estimate falls with them") {
  const net::Network network = test::tiny_xl();
  TrainingConfig config = test::tiny_config();
  config.batch = 32;
  config.slices = 2;
  constexpr std::int64_t kParameters = 1000;
  CHECK(choose_passes(network, kParameters, config, 2, 0, std::int64_t{1} << 40) == 1);
  CHECK(choose_passes(network, kParameters, config, 2, 0, 0) == 16);
  std::int64_t passes_before = 16;
  for (config.passes = 2; config.passes <= 16; config.passes *= 2) {
    const MemoryEstimate estimate = estimate_memory(network, kParameters, config, 2);
    const std::int64_t enough = estimate.total() - estimate.process;
    const std::int64_t chosen = choose_passes(network, kParameters, config, 2, 0, enough);
    CHECK(chosen <= config.passes);
    CHECK(fits(network, kParameters, config, 2, 0, enough));
    TrainingConfig other = config;
    other.passes = config.passes / 2;
    CHECK(estimate.activations < estimate_memory(network, kParameters, other, 2).activations);
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
  constexpr std::int64_t kParameters = 1000;
  const auto needs = [&](std::int64_t passes) {
    config.passes = passes;
    const MemoryEstimate estimate = estimate_memory(network, kParameters, config, 2);
    return estimate.total() - estimate.process;
  };
  for (const std::int64_t batch : {37, 36}) {
    config.batch = batch;
    for (std::int64_t passes = 1; passes <= batch; ++passes) {
      const std::int64_t available = needs(passes);
      std::int64_t fewest = 1;
      while (needs(fewest) > available) ++fewest;
      CAPTURE(passes);
      CHECK(choose_passes(network, kParameters, config, 2, 0, available) == fewest);
    }
  }
  config.batch = 1 << 20;
  CHECK(choose_passes(network, kParameters, config, 2, 0, 0) == config.batch);
}

TEST_CASE(
    "estimate_memory: linear attention is in proportion to the window, softmax to all pairs") {
  const auto growth = [](net::Attention attention) {
    net::Network network = test::tiny_xl();
    network.attention = attention;
    network.dropatt = 0;
    const auto activations = [&](std::int64_t length) {
      network.lengths = {length, length, 0};
      return static_cast<double>(
          estimate_memory(network, 1000, test::tiny_config(), 2).activations);
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
    return estimate_memory(network, 1000, config, 2, {0, tokens});
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

TEST_CASE("estimate_memory: every row of a training keeps a frame of the data") {
  const net::Network network = test::tiny_xl();
  TrainingConfig config = test::tiny_config();
  config.batch = 32;
  const auto estimate = [&](std::int64_t frame_bytes) {
    const MemoryEstimate found = estimate_memory(network, 1000, config, 2, {frame_bytes, 0});
    return found.total() - found.process;
  };
  CHECK(estimate(1 << 18) - estimate(0) == 32 << 18);
  CHECK(choose_passes(network, 1000, config, 2, 1 << 18, estimate(0)) == 32);
}

TEST_CASE("CpuTrainer: slices and passes change a step only by rounding") {
  net::Network resetting = test::tiny_ql();
  resetting.reset_memory_at_documents = true;
  for (const net::Network& network :
       {test::tiny_xl(), test::tiny_ql(), test::tiny_compressive(), resetting}) {
    const TrainedInSlices whole = run(network, 1, 1, 1);
    for (const auto& [slices, passes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {2, 1}, {3, 1}, {7, 1}, {1, 2}, {3, 2}}) {
      CAPTURE(net::to_text(network.architecture));
      CAPTURE(slices);
      CAPTURE(passes);
      const TrainedInSlices parts = run(network, slices, passes, 1);
      for (std::size_t step = 0; step < whole.losses.size(); ++step) {
        CHECK(parts.losses[step] == doctest::Approx(whole.losses[step]).epsilon(1e-5));
        CHECK(parts.norms[step] == doctest::Approx(whole.norms[step]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("train: a training is the same bit for bit with any number of threads") {
  for (const net::Network& network : {test::tiny_xl(), test::tiny_ql(), test::tiny_compressive()}) {
    CAPTURE(net::to_text(network.architecture));
    for (const std::int64_t slices : {2, 3}) {
      const TrainedInSlices one = run(network, slices, 2, 1);
      check_equal(one, run(network, slices, 2, 2));
      check_equal(one, run(network, slices, 2, 4));
    }
  }
}

}  // namespace ql::train
