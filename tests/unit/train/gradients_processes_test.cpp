// Compares training by several processes with training by one.
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "machine/device.h"
#include "train/gradients.h"
#include "train/training_step.h"
#include "unit/process_support.h"
#include "unit/scratch.h"
#include "unit/test_device.h"
#include "unit/torch_doctest.h"
#include "unit/train/flat_support.h"
#include "unit/train_support.h"

namespace ql::train {
namespace {

struct TrainedTogether {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights, memory;
};

ComputeDevice compute_of(const machine::ProcessGroup& group, bool enqueues) {
  if (!enqueues) return {};
  return {test::device(group), true, /*enqueues_on_cpu=*/true};
}

// Runs some steps over the start of a second epoch.
TrainedTogether train_steps(const std::filesystem::path& data, const net::Network& network,
                            const TrainingConfig& config, bool enqueues,
                            machine::ProcessGroup& group) {
  shard::MultiReader reader({std::string(data)});
  Streams streams(reader, config.batch, network.lengths.segment, group.share_of(config.batch));
  TrainedNetwork learner(network, config, compute_of(group, enqueues), group);
  std::optional<machine::OperationsOnly> operations;
  if (enqueues) operations.emplace();
  TrainedTogether trained;
  for (std::int64_t step = 0; step < streams.steps_per_epoch() + 3; ++step) {
    const StepSums result = learner.step(streams, step, 0.005), late = learner.finish();
    trained.losses.push_back(result.loss + late.loss);
    trained.norms.push_back(result.gradient_norm + late.gradient_norm);
    if (step == 1) {
      learner.set_memory(learner.memory());  // as a resume does
    }
  }
  for (const nn::NamedTensor& parameter : learner.model().parameters()) {
    trained.weights.push_back(parameter.tensor.detach().cpu().clone());
  }
  for (const nn::NamedTensor& state : learner.memory().named()) {
    trained.memory.push_back(state.tensor.cpu().clone());
  }
  return trained;
}

void check_near(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(at::allclose(a[i], b[i], 1e-4, 1e-5));
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) same = a[i].equal(b[i]);
  return same;
}

std::vector<net::Network> networks_of_processes() {
  net::Network resets = test::tiny_xl();
  resets.reset_memory_at_documents = true;
  // Not every pass has a token of the second cluster, and its projection is used only by its
  // tokens.
  net::Network clusters = test::tiny_xl();
  clusters.cutoffs = {21};
  clusters.div_val = 2;
  clusters.tie_projs = {false, false};
  return {test::tiny_ql(), test::tiny_compressive(net::Pool::kConvolution), resets, clusters};
}

TrainingConfig shared_config() {
  TrainingConfig config = test::tiny_config();
  config.batch = 5;  // not divisible
  config.clip = 0.25;
  // With less, Adam makes a full step of a gradient that is nothing but rounding.
  config.adam.epsilon = 1e-4;
  return config;
}

// Compares one process with 2 and 3.
void compare_with_one(const std::filesystem::path& data, const net::Network& network,
                      const TrainingConfig& config, bool enqueues) {
  const TrainedTogether alone =
      train_steps(data, network, config, enqueues, machine::ProcessGroup::single());
  for (const int size : {2, 3}) {
    if (!test::has_devices(size)) continue;
    CAPTURE(size);
    std::vector<TrainedTogether> trained(static_cast<std::size_t>(size));
    test::in_group(size, [&](machine::ProcessGroup& group) {
      trained[static_cast<std::size_t>(group.rank())] =
          train_steps(data, network, config, enqueues, group);
    });
    for (std::size_t step = 0; step < alone.losses.size(); ++step) {
      CHECK(trained[0].losses[step] == doctest::Approx(alone.losses[step]).epsilon(1e-4));
      CHECK(trained[0].norms[step] == doctest::Approx(alone.norms[step]).epsilon(1e-3));
    }
    check_near(trained[0].weights, alone.weights);
    check_near(trained[0].memory, alone.memory);
    for (const TrainedTogether& other : trained) {
      CHECK(other.losses == trained[0].losses);
      CHECK(same_bits(other.weights, trained[0].weights));
      CHECK(same_bits(other.memory, trained[0].memory));
    }
  }
}

}  // namespace

TEST_SUITE_BEGIN("processes");

TEST_CASE("TrainedNetwork: several processes train as one does") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(400, 23), 23, "made up", {50, 130, 131, 300});
  TrainingConfig config = shared_config();
  config.slices = 2;
  config.passes = 2;
  for (const net::Network& network : networks_of_processes()) {
    CAPTURE(net::to_text(network.architecture));
    compare_with_one(scratch / "data", network, config, /*enqueues=*/false);
  }
}

TEST_CASE("TrainedNetwork: several processes train on a device each as one does") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(400, 23), 23, "made up", {50, 130, 131, 300});
  TrainingConfig config = shared_config();
  for (net::Network network : networks_of_processes()) {
    CAPTURE(net::to_text(network.architecture));
    config.half_loss = network.architecture == net::Architecture::kTransformerQl;
    if (!test::device().is_cpu()) {
      network.dropout = network.dropatt = 0;  // a GPU draws for each process separately
    }
    compare_with_one(scratch / "data", network, config, /*enqueues=*/true);
  }
}

// Trains a step by two processes, of which one has a gradient that is not finite: `spoil` gives a
// parameter such a gradient.
template <typename Spoil>
static void check_not_finite(bool enqueues, const Spoil& spoil) {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(110, 23), 23, "made up", {});
  std::atomic<int> stopped{0}, unchanged{0};
  test::in_group(2, [&](machine::ProcessGroup& group) {
    shard::MultiReader reader({(scratch / "data").string()});
    Streams streams(reader, 3, 4, group.share_of(3));
    TrainedNetwork learner(test::tiny_xl(), test::tiny_config(), compute_of(group, enqueues),
                           group);
    const at::Tensor& last = learner.model().parameters().back().tensor;
    if (group.rank() == 1) spoil(last);
    const at::Tensor before = last.detach().clone();
    try {
      learner.step(streams, 0, 0.1);
      learner.finish();
    } catch (const Diverged& error) {
      stopped += error.found().step == 0 && !std::isfinite(error.found().gradient_norm.value());
    }
    unchanged += at::equal(last, before);
  });
  CHECK(stopped == 2);
  CHECK(unchanged == 2);
}

TEST_CASE("TrainedNetwork: a gradient that is not finite in one process stops all") {
  check_not_finite(false, [](const at::Tensor& parameter) {
    parameter.detach().view(-1)[0] = std::numeric_limits<double>::infinity();
  });
  if (!test::has_devices(2)) return;
  check_not_finite(true, [](const at::Tensor& parameter) {
    parameter.register_hook([](const at::Tensor& gradient) {
      return gradient * std::numeric_limits<double>::infinity();
    });
  });
}

TEST_CASE("GradientExchange: adds up slices and processes, range by range") {
  for (const std::int64_t range_bytes : {1, 30, 1000}) {
    CAPTURE(range_bytes);
    std::mutex mutex;
    std::vector<std::vector<at::Tensor>> found;
    test::in_group(2, [&](machine::ProcessGroup& group) {
      const nn::FlatTensors parameters = nn::make_flat({{"a", at::zeros({3, 2})},
                                                        {"b", at::zeros({5})},
                                                        {"c", at::zeros({1})},
                                                        {"d", at::zeros({7})},
                                                        {"e", at::zeros({64})}});
      GradientExchange exchange(group, parameters, 2, range_bytes);
      std::vector<at::Tensor> sums;
      for (int step = 0; step < 2; ++step) {
        // "a" comes from one slice only, "c" from none.
        for (const std::size_t index : {3, 4, 1}) {
          for (const std::size_t slice : {1, 0}) {
            exchange.put(slice, index,
                         at::full(parameters.named[index].tensor.sizes(),
                                  static_cast<double>(step + 1) * (group.rank() + 1) +
                                      10.0 * static_cast<double>(slice)));
          }
        }
        exchange.put(1, 0, at::full({3, 2}, group.rank() + 0.5));
        sums = test::by_parameter(parameters, exchange.finish());
      }
      const std::lock_guard<std::mutex> lock(mutex);
      found.push_back(sums);
    });
    for (const std::vector<at::Tensor>& sums : found) {
      CHECK(sums[0].equal(at::full({3, 2}, 2.0)));
      CHECK(sums[1].equal(at::full({5}, 32.0)));
      CHECK(sums[2].equal(at::zeros({1})));
      CHECK(sums[3].equal(at::full({7}, 32.0)));
      CHECK(sums[4].equal(at::full({64}, 32.0)));
    }
  }
}

TEST_CASE("set_memory: every process takes its own rows of a memory") {
  TrainingConfig config = test::tiny_config();
  config.batch = 5;
  std::atomic<int> equal = 0;
  test::in_group(3, [&](machine::ProcessGroup& group) {
    TrainedNetwork learner(test::tiny_xl(), config, {}, group);
    const nn::Memory memory = learner.memory().with([](const at::Tensor& states) {
      return at::arange(states.numel(), at::kFloat).view(states.sizes());
    });
    learner.set_memory(memory);
    const nn::Memory found = learner.memory();
    for (std::size_t i = 0; i < memory.named().size(); ++i) {
      equal += found.named()[i].tensor.equal(memory.named()[i].tensor) ? 1 : 0;
    }
  });
  CHECK(equal == 3 * 3);  // as many as layers in each process
}

TEST_SUITE_END();

}  // namespace ql::train
