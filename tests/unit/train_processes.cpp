// Training by several processes against training by one.
#include <atomic>
#include <mutex>

#include "base/error.h"
#include "process_support.h"
#include "scratch.h"
#include "torch_doctest.h"
#include "train/gradient_exchange.h"
#include "train/learner.h"
#include "train_support.h"

namespace ql::train {
namespace {

struct Trained {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights, memory;
};

// Some steps over the start of a second epoch.
Trained train_steps(const std::filesystem::path& data, const net::Network& network,
                    const TrainingConfig& config, nn::ProcessGroup* group) {
  shard::TokenReader reader(data);
  const nn::RowRange rows =
      group != nullptr ? group->share_of(config.batch) : nn::RowRange{0, config.batch};
  Streams streams(reader, config.batch, network.lengths.segment, rows);
  Learner learner(network, config, group);
  Trained trained;
  for (std::int64_t step = 0; step < streams.steps_per_epoch() + 3; ++step) {
    const StepResult result = learner.step(streams, step, 0.005);
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  }
  for (const nn::NamedTensor& parameter : learner.model().parameters()) {
    trained.weights.push_back(parameter.tensor.detach().clone());
  }
  for (const nn::NamedTensor& state : learner.memory().states) {
    trained.memory.push_back(state.tensor.clone());
  }
  return trained;
}

void check_near(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(at::allclose(a[i], b[i], 1e-3, 1e-4));
  }
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].equal(b[i]);
  }
  return same;
}

}  // namespace

TEST_CASE("several processes train as one does") {
  const test::ScratchFolder scratch;
  test::pack(scratch / "data", test::scrambled(400, 23), 23, "made up", {50, 130, 131, 300});
  net::Network resets = test::tiny_xl();
  resets.reset_memory_at_documents = true;
  // Not every pass has a token of the second cluster, and its projection is for tokens alone.
  net::Network clusters = test::tiny_xl();
  clusters.cutoffs = {21};
  clusters.div_val = 2;
  clusters.tie_projs = {false, false};
  for (const net::Network& network :
       {test::tiny_ql(), test::tiny_compressive(net::Pool::kConvolution), resets, clusters}) {
    CAPTURE(net::to_text(network.architecture));
    TrainingConfig config = test::tiny_config();
    config.batch = 5;  // not divisible
    config.clip = 0.25;
    config.slices = 2;
    config.passes = 2;
    const Trained alone = train_steps(scratch / "data", network, config, nullptr);
    for (const int size : {2, 3}) {
      CAPTURE(size);
      std::vector<Trained> trained(static_cast<std::size_t>(size));
      test::in_group(size, [&](nn::ProcessGroup& group) {
        trained[static_cast<std::size_t>(group.rank())] =
            train_steps(scratch / "data", network, config, &group);
      });
      for (std::size_t step = 0; step < alone.losses.size(); ++step) {
        CHECK(trained[0].losses[step] == doctest::Approx(alone.losses[step]).epsilon(1e-4));
        CHECK(trained[0].norms[step] == doctest::Approx(alone.norms[step]).epsilon(1e-3));
      }
      check_near(trained[0].weights, alone.weights);
      check_near(trained[0].memory, alone.memory);
      for (const Trained& other : trained) {
        CHECK(other.losses == trained[0].losses);
        CHECK(same_bits(other.weights, trained[0].weights));
        CHECK(same_bits(other.memory, trained[0].memory));
      }
    }
  }
}

TEST_CASE("the exchange adds up slices and processes, bucket by bucket") {
  const std::vector<nn::NamedTensor> parameters = {{"a", at::zeros({3, 2})},
                                                   {"b", at::zeros({5})},
                                                   {"c", at::zeros({1})},
                                                   {"d", at::zeros({7})}};
  for (const std::int64_t bucket_bytes : {1, 30, 1000}) {
    CAPTURE(bucket_bytes);
    std::mutex mutex;
    std::vector<Gradients> found;
    test::in_group(2, [&](nn::ProcessGroup& group) {
      GradientExchange exchange(group, parameters, 2, bucket_bytes);
      Gradients sums;
      for (int step = 0; step < 2; ++step) {
        // "a" comes from one slice only, "c" from none.
        for (const std::size_t index : {3, 1}) {
          for (const std::size_t slice : {1, 0}) {
            exchange.put(slice, index,
                         at::full(parameters[index].tensor.sizes(),
                                  static_cast<double>(step + 1) * (group.rank() + 1) +
                                      10.0 * static_cast<double>(slice)));
          }
        }
        exchange.put(1, 0, at::full({3, 2}, group.rank() + 0.5));
        sums.clear();
        for (const at::Tensor& sum : exchange.finish()) {
          sums.push_back(sum.clone());
        }
      }
      const std::lock_guard<std::mutex> lock(mutex);
      found.push_back(sums);
    });
    for (const Gradients& sums : found) {
      CHECK(sums[0].equal(at::full({3, 2}, 2.0)));
      CHECK(sums[1].equal(at::full({5}, 32.0)));
      CHECK(sums[2].equal(at::zeros({1})));
      CHECK(sums[3].equal(at::full({7}, 32.0)));
    }
  }
}

}  // namespace ql::train
