// Measures tokens a second of exact evaluation, for networks of the paper's SimpleBooks-2 size at
// the lengths 04/12 (Compressive 04/06/06) and 512/512, with random weights and tokens. Compare the
// counter `flops` with that of the matrix product in the same run.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/items.h"
#include "machine/device.h"
#include "machine/threads.h"
#include "net/cost.h"
#include "net/model_file.h"
#include "nn/model.h"

namespace {

constexpr std::int64_t kVocabulary = 10437;

void matrix_product(benchmark::State& state) {
  const at::NoGradGuard no_gradient;
  constexpr std::int64_t kSize = 1024;
  const at::Tensor a = at::rand({kSize, kSize}), b = at::rand({kSize, kSize});
  at::Tensor product = at::empty({kSize, kSize});
  while (state.KeepRunning()) {
    at::mm_out(product, a, b);
    benchmark::DoNotOptimize(product.data_ptr());
  }
  state.counters["flops"] = benchmark::Counter(2.0 * kSize * kSize * kSize,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(matrix_product)->UseRealTime();

ql::net::Network network_of(const std::string& name) {
  ql::net::Network network =
      ql::net::read_preset(std::string(QL_SHARE) + "/presets/simplebooks-2-" + name + ".json", {},
                           {})
          .network;
  network.vocab_size = kVocabulary;
  return network;
}

// The last argument is 1 for products of bfloat16.
void evaluation(benchmark::State& state, const std::string& name, const ql::net::Lengths& lengths) {
  const std::int64_t tokens = state.range(0);
  const ql::net::Network network = network_of(name);
  ql::nn::Model model(network, at::TensorOptions(at::kFloat));
  model.initialise(1);
  const at::Tensor ids = at::randint(kVocabulary, {tokens + 1}, at::kLong);
  const ql::eval::TokenSource source{
      "random", tokens + 1, [&ids](std::int64_t begin, std::int64_t count, std::int64_t* out) {
        std::copy_n(ids.data_ptr<std::int64_t>() + begin, count, out);
      }};
  ql::eval::EvaluationOptions options;
  options.lengths = lengths;
  options.chunk = state.range(1);
  const bool rounded = state.range(2) == 1;
  if (rounded && ql::machine::bfloat16_products() == ql::machine::Bfloat16Products::kNone) {
    state.SkipWithError("this processor has no products of bfloat16");
    return;
  }
  const ql::nn::ModelPrecision precision(
      model, rounded ? ql::machine::Precision::kBfloat16 : ql::machine::Precision::kFloat32);
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(ql::eval::evaluate(model, source, options).nll);
  }
  state.SetItemsProcessed(state.iterations() * tokens);
  state.counters["flops"] = benchmark::Counter(
      static_cast<double>(tokens) * ql::net::cost(network, lengths).forward_flops_per_token,
      benchmark::Counter::kIsIterationInvariantRate);
}

void items(benchmark::State& state, const std::string& name, const ql::net::Lengths& lengths) {
  constexpr std::int64_t kItems = 10000, kContext = 12, kChoice = 8;
  const ql::net::Network network = network_of(name);
  ql::nn::Model model(network, at::TensorOptions(at::kFloat));
  model.initialise(1);
  const ql::nn::ModelAtLengths at_lengths(model, lengths);
  const at::Tensor ids = at::randint(kVocabulary, {kItems, kContext + kChoice}, at::kLong);
  double sum = 0;
  while (state.KeepRunning()) {
    ql::eval::ItemScorer scorer(at_lengths, 0, {}, [&](const ql::eval::Item& item) {
      sum += item.choices.front().log_probability;
    });
    for (std::int64_t i = 0; i < kItems; ++i) {
      const auto* const begin = ids[i].data_ptr<std::int64_t>();
      ql::eval::Item item;
      item.context.assign(begin, begin + kContext);
      item.choices.resize(1);
      item.choices.front().ids.assign(begin + kContext, begin + kContext + kChoice);
      scorer.put(std::move(item));
    }
    scorer.put_waiting();
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * kItems * (kContext + kChoice));
}

const ql::net::Lengths kLengths{4, 12, 0}, kCompressive{4, 6, 6};
const ql::net::Lengths kMiddle{64, 64, 0}, kLong{512, 512, 0};
#define QL_EVALUATION(NAME, PRESET, LENGTHS)           \
  BENCHMARK_CAPTURE(evaluation, NAME, PRESET, LENGTHS) \
      ->ArgNames({"tokens", "chunk", "bfloat16"})      \
      ->Args({16384, 0, 0})                            \
      ->Args({16384, 0, 1})                            \
      ->Unit(benchmark::kMillisecond)                  \
      ->UseRealTime()
#define QL_ITEMS(NAME, PRESET, LENGTHS) \
  BENCHMARK_CAPTURE(items, NAME, PRESET, LENGTHS)->Unit(benchmark::kMillisecond)->UseRealTime()
QL_EVALUATION(xl, "xl", kLengths);
QL_EVALUATION(ql, "ql", kLengths);
QL_EVALUATION(compressive, "compressive", kCompressive);
QL_EVALUATION(xl_middle, "xl", kMiddle);
QL_EVALUATION(ql_middle, "ql", kMiddle);
QL_EVALUATION(xl_long, "xl", kLong);
QL_EVALUATION(ql_long, "ql", kLong);
QL_ITEMS(xl, "xl", kLengths);
QL_ITEMS(ql, "ql", kLengths);
QL_ITEMS(compressive, "compressive", kCompressive);
QL_ITEMS(xl_middle, "xl", kMiddle);
QL_ITEMS(ql_middle, "ql", kMiddle);

// The tools set up threads before the first tensor, too.
[[maybe_unused]] const ql::machine::ThreadSetup thread_setup = ql::machine::set_up_threads(0);

}  // namespace
