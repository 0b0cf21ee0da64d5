// Compares a step in slices (micro-batches) and passes (accumulation steps) with the same step in
// one piece.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "train/gradients.h"
#include "train/training_step.h"
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
  config.adam.epsilon = 1e-4;  // with less, Adam makes large steps of rounding errors
  Streams streams(reader, config.batch, network.lengths.segment);
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  TrainedNetwork learner(network, config);
  TrainedInSlices trained;
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepSums result = learner.step(streams, step, 0.01);
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

TEST_CASE("TrainedNetwork: slices and passes change a step only by rounding") {
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
      REQUIRE(parts.weights.size() == whole.weights.size());
      for (std::size_t i = 0; i < whole.weights.size(); ++i) {
        CHECK(at::allclose(parts.weights[i], whole.weights[i], 1e-4, 1e-5));
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
