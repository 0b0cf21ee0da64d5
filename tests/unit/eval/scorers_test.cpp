// Chunks that are long enough to be computed in pieces: the losses equal those of a single stream
// that is read segment by segment, with the same bits for any number of threads.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "eval/evaluate.h"
#include "eval/losses.h"
#include "unit/eval_support.h"
#include "unit/so_many_threads.h"

namespace ql::eval {
namespace {

using net::Architecture;
using test::random_model;
using test::small_network;
using test::SoManyThreads;

// A stream has eight pieces of 256 states at a scale that has half as many states as tokens.
constexpr std::int64_t kStreamLength = 4500;

struct Read {
  std::vector<double> losses;
  std::vector<double> likeliest;
};

Read read(const nn::Model& model, const Ids& ids, std::int64_t batch, std::int64_t top = 0) {
  static const Ids documents{0, 5, 6, 16, 1000, 2001, 2002, 4400};
  Read result;
  result.losses.resize(ids.size());
  EvaluationOptions options;
  options.lengths = model.network().lengths;
  options.batch = batch;
  options.top = top;
  options.target_sink = [&](const ScoredTargets& targets) {
    std::copy_n(targets.losses, targets.count, result.losses.begin() + targets.position);
    for (std::int64_t i = 0; i < targets.count * top; ++i) {
      result.likeliest.push_back(targets.likeliest[i].log_probability);
    }
  };
  evaluate(model, source_from(ids, []() -> const Ids& { return documents; }), options);
  return result;
}

std::vector<std::pair<std::string, net::Network>> networks() {
  const auto ql = Architecture::kTransformerQl;
  net::Network linear = small_network(ql, {1, 1}, 1, {4, 6, 0});
  linear.attention = net::Attention::kLinear;
  net::Network finer = small_network(ql, {1, 1}, 1, {4, 4, 0});
  finer.query_only_pooling = true;
  net::Network norm_after = small_network(ql, {1, 1}, 1, {4, 4, 0});
  norm_after.pre_lnorm = false;
  net::Network documents = small_network(ql, {1, 1}, 1, {4, 8, 0});
  documents.reset_memory_at_documents = true;
  net::Network wide = small_network(ql, {1, 1}, 1, {4, 4, 0});
  wide.scale_widths = {8, 12};
  net::Network convolution = small_network(Architecture::kCompressive, {2}, 0, {6, 4, 3});
  convolution.rate = 3;
  convolution.pool = net::Pool::kConvolution;
  net::Network adaptive = small_network(Architecture::kTransformerXl, {2}, 0, {3, 5, 0});
  adaptive.cutoffs = {4};
  adaptive.div_val = 2;
  return {{"two scales", small_network(ql, {1, 1}, 1, {4, 4, 0})},
          {"Transformer-XL", small_network(Architecture::kTransformerXl, {2}, 0, {3, 5, 0})},
          {"adaptive softmax", adaptive},
          {"linear attention", linear},
          {"query-only pooling", finer},
          {"layer norm after the sum", norm_after},
          {"documents", documents},
          {"wider coarse states", wide},
          {"Compressive", convolution},
          {"vanilla", small_network(Architecture::kVanilla, {2}, 0, {4, 0, 0})}};
}

}  // namespace

TEST_CASE("StreamScorer: computing in pieces gives the losses of a single stream" *
          doctest::test_suite("numeric")) {
  const SoManyThreads three(3);
  for (const auto& [name, network] : networks()) {
    CAPTURE(name);
    const nn::Model model = random_model(network, 3);
    const Ids ids = random_ids(kStreamLength, network.vocab_size);
    const std::vector<double> expected = read(model, ids, 1).losses;
    const std::vector<double> layerwise = read(model, ids, 0).losses;
    const std::vector<double> columns = read(model, ids, 7).losses;
    double difference = 0;
    for (std::size_t i = 1; i < ids.size(); ++i) {
      difference = std::max(
          {difference, std::abs(layerwise[i] - expected[i]), std::abs(columns[i] - expected[i])});
    }
    CHECK(difference < 1e-11);
  }
}

TEST_CASE(
    "likeliest_in_blocks: the tokens of a chunk come in blocks, with the bits of all together") {
  net::Network network = small_network(Architecture::kVanilla, {1}, 0, {4, 0, 0});
  network.vocab_size = 9000;
  const nn::Model model = random_model(network, 4, at::kFloat);
  const at::Tensor states = at::randn({1000, network.d_model}, at::kFloat);
  constexpr std::int64_t kTop = 9000, kMostBytes = std::int64_t{64} << 20;
  const std::int64_t rows = rows_of_likeliest(model, states, kTop);
  CHECK(rows * kTop * static_cast<std::int64_t>(sizeof(LikelyToken)) <= kMostBytes);
  CHECK(rows * 2 < states.size(0));
  CHECK(rows_of_likeliest(model, states, 1) > states.size(0));
  CHECK(rows_of_likeliest(model, states, 0) == states.size(0));

  const std::vector<LikelyToken> all = likeliest_in_blocks(model, states, kTop);
  const Ids ids(1000, 7);
  const std::vector<double> losses(1000, 1.0);
  std::size_t next = 0;
  bool same = true;
  EvaluationOptions options;
  options.top = kTop;
  options.target_sink = [&](const ScoredTargets& targets) {
    CHECK(targets.count <= rows);
    for (std::int64_t i = 0; i < targets.count * kTop; ++i, ++next) {
      same = same && targets.likeliest[i].id == all[next].id &&
             targets.likeliest[i].log_probability == all[next].log_probability;
    }
  };
  Evaluation result;
  add_losses_with_likeliest(model, states, {1, ids.data(), losses.data(), 1000}, options, result);
  CHECK(next == all.size());
  CHECK(same);
  CHECK(result.targets == 1000);
}

TEST_CASE("evaluate: an evaluation has the same bits for any number of threads" *
          doctest::test_suite("numeric")) {
  for (auto& [name, network] : networks()) {
    CAPTURE(name);
    net::Network wide = network;
    wide.d_model = wide.d_inner = 100;
    wide.vocab_size = 900;
    wide.init_std = 0.1;
    if (!wide.scale_widths.empty()) wide.scale_widths = {100, 48};
    const nn::Model model = random_model(wide, 4, at::kFloat);
    const Ids ids = random_ids(kStreamLength, wide.vocab_size);
    for (const std::int64_t batch : {0, 40, 230}) {
      CAPTURE(batch);
      const std::int64_t top = batch == 0 ? 2 : 0;
      const auto by_threads = [&](int threads) {
        const SoManyThreads so_many(threads);
        return read(model, ids, batch, top);
      };
      const Read by_one = by_threads(1), by_two = by_threads(2), by_three = by_threads(3);
      CHECK(by_two.losses == by_one.losses);
      CHECK(by_three.losses == by_one.losses);
      CHECK(by_three.likeliest == by_one.likeliest);
    }
  }
}

}  // namespace ql::eval
