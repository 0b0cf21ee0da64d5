// Compares the trial of a training run with real steps, and checks which passes it chooses.
#include "train/memory_trial.h"

#include <limits>

#include "machine/tensor_memory.h"
#include "net/cost.h"
#include "train/training_step.h"
#include "unit/scratch.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// Returns networks whose tensors are much larger than what a training run has besides them.
std::vector<net::Network> large_networks() {
  std::vector<net::Network> all{test::tiny_ql(), test::tiny_xl(), test::tiny_compressive(),
                                test::tiny_compressive(net::Pool::kMostUsed)};
  net::Network adaptive = test::tiny_ql();
  adaptive.vocab_size = 4000;
  adaptive.cutoffs = {200, 1000};
  adaptive.div_val = 2;
  adaptive.reset_memory_at_documents = true;
  all.push_back(adaptive);
  for (net::Network& network : all) {
    network.vocab_size = std::max<std::int64_t>(network.vocab_size, 1000);
    network.d_model = 64;
    network.d_head = 32;
    network.d_inner = 256;
    network.lengths = {32, 32, network.lengths.compressed_memory > 0 ? 32 : 0};
  }
  return all;
}

TrainingConfig divided_config(std::int64_t slices, std::int64_t passes) {
  TrainingConfig config = test::tiny_config();
  config.batch = 24;
  config.slices = slices;
  config.passes = passes;
  return config;
}

struct CountedRun {
  at::Tensor weights;
  std::int64_t peak = 0;
};

// Trains for three steps on the calling thread.
CountedRun count_run(const net::Network& network, const TrainingConfig& config) {
  const test::ScratchFolder scratch;
  const auto vocabulary = static_cast<std::uint32_t>(network.vocab_size);
  test::pack(scratch / "data", test::scrambled(10000, vocabulary), network.vocab_size);
  shard::MultiReader reader({(scratch / "data").string()});
  Streams streams(reader, config.batch, network.lengths.segment);
  CountedRun run;
  machine::MemoryCount count(kNoLimit);
  TrainedNetwork learner(network, config);
  for (std::int64_t step = 0; step < 3; ++step) learner.step(streams, step, 0.001);
  run.peak = count.peak();
  run.weights = learner.model().weights().flat.all.clone();
  return run;
}

std::int64_t tensors_of(const TrainingMemory& memory) {
  return memory.weights + memory.memories + memory.step;
}

}  // namespace

TEST_CASE("MemoryTrial: measures what real steps allocate") {
  const test::WithThreads one(1);
  for (const net::Network& network : large_networks()) {
    for (const auto& [slices, passes] : {std::pair(1, 1), {2, 1}, {2, 3}, {4, 2}}) {
      for (const auto precision : {machine::Precision::kFloat32, machine::Precision::kBfloat16}) {
        TrainingConfig config = divided_config(slices, passes);
        config.precision = precision;
        const auto measured = MemoryTrial(network, config, 1, kNoLimit).step(slices, passes);
        const CountedRun run = count_run(network, config);
        CAPTURE(to_text(network.architecture));
        CAPTURE(to_text(network.pool));
        CAPTURE(slices);
        CAPTURE(passes);
        CAPTURE(to_text(precision));
        REQUIRE(measured);
        CHECK(static_cast<double>(tensors_of(*measured)) ==
              doctest::Approx(static_cast<double>(run.peak)).epsilon(0.03));
      }
    }
  }
}

TEST_CASE("MemoryTrial: a pass may lack targets of some clusters") {
  net::Network network = large_networks().back();
  network.cutoffs = {2000, 2004, 3000};  // 4 ids are narrower than the distance of the trial's ids
  network.lengths = {2, 2, 0};
  TrainingConfig config = test::tiny_config();
  for (const auto& [rows, half_loss] : {std::pair(1, false), {8, false}, {8, true}}) {
    CAPTURE(rows);
    config.batch = rows;
    config.half_loss = half_loss;
    MemoryTrial trial(network, config, 1, kNoLimit);
    const std::optional<TrainingMemory> memory = trial.step(1, 1);
    REQUIRE(memory);
    CHECK(memory->step > 0);
    CHECK(tensors_of(*memory) >= count_run(network, config).peak * 9 / 10);
  }
}

TEST_CASE("MemoryTrial: slices that run in parallel count together") {
  const test::WithThreads one(1);
  const net::Network network = large_networks().front();
  const auto step = [&](int threads, std::int64_t slices) {
    return MemoryTrial(network, divided_config(slices, 1), threads, kNoLimit).step(slices, 1)->step;
  };
  const std::int64_t weights = 4 * net::cost(network, network.lengths).parameters;
  // Without a second thread, the first slice leaves its gradient.
  CHECK(step(2, 2) > step(1, 2));
  CHECK(step(2, 2) < 2 * step(1, 2) - weights);
  CHECK(step(8, 2) == step(2, 2));
}

TEST_CASE("MemoryTrial: changes nothing that a training run reads") {
  const net::Network network = large_networks().front();
  const TrainingConfig config = divided_config(2, 1);
  at::manual_seed(1);
  const at::Tensor weights = count_run(network, config).weights;
  const at::Tensor random_after = at::rand({4});
  at::manual_seed(1);
  MemoryTrial trial(network, config, 2, kNoLimit);
  CHECK(trial.with_validation(*trial.step(2, 1), 1000));
  CHECK(count_run(network, config).weights.equal(weights));
  CHECK(at::rand({4}).equal(random_after));
}

TEST_CASE("MemoryTrial: a lower limit takes more passes") {
  const net::Network network = large_networks().front();
  const TrainingConfig config = divided_config(2, 0);
  MemoryTrial free(network, config, 2, kNoLimit);
  const auto chosen = [&](std::int64_t limit) {
    MemoryTrial trial(network, config, 2, limit);
    return choose_passes(12,
                         [&](std::int64_t passes) { return trial.step(2, passes).has_value(); });
  };
  for (const std::int64_t passes : {1, 2, 4}) {
    const std::int64_t enough = free.step(2, passes)->total();
    CAPTURE(passes);
    CHECK(chosen(enough) == passes);
    CHECK(chosen(enough - 1) > passes);
  }
  CHECK(chosen(0) == 12);
  CHECK_FALSE(MemoryTrial(network, config, 2, 0).step(2, 12));
}

TEST_CASE("MemoryTrial: a validation takes as many segments as a chunk has") {
  const net::Network network = large_networks().front();
  TrainingConfig config = divided_config(2, 1);
  const auto validation = [&](std::int64_t tokens) {
    MemoryTrial trial(network, config, 2, kNoLimit);
    return trial.with_validation({}, tokens)->validation;
  };
  CHECK(validation(2) > 0);
  CHECK(validation(321) > 2 * validation(33));
  CHECK(validation(std::int64_t{1} << 40) < std::int64_t{256} << 20);
  const std::int64_t short_memory = validation(3200);
  config.eval_memory = 1024;
  CHECK(validation(3200) > short_memory);
  MemoryTrial trial(network, config, 2, std::int64_t{1} << 20);
  CHECK_FALSE(trial.with_validation({}, 3200));
}

TEST_CASE("choose_passes: finds the fewest passes that fit, by few trials") {
  for (std::int64_t most = 1; most <= 40; ++most) {
    for (std::int64_t fewest = 1; fewest <= most + 1; ++fewest) {
      int trials = 0;
      const std::int64_t found = choose_passes(most, [&](std::int64_t passes) {
        ++trials;
        return passes >= fewest;
      });
      CAPTURE(most);
      CAPTURE(fewest);
      CHECK(found == std::min(fewest, most));
      CHECK(trials <= 11);
    }
  }
}

}  // namespace ql::train
