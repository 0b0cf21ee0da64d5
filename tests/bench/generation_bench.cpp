// Measures tokens a second of generated text, for networks of the paper's SimpleBooks-2 size at the
// lengths 04/12 (Compressive 04/06/06) with random weights. A token reads every weight at least
// once. So compare the counter `bytes` with that of the benchmark that reads the same number of
// bytes.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "generate/generator.h"
#include "machine/device.h"
#include "machine/threads.h"
#include "net/model_file.h"
#include "nn/model_at_lengths.h"
#include "one_thread.h"

namespace {

constexpr std::int64_t kVocabulary = 10437;
constexpr std::int64_t kTokens = 128;

ql::net::Network network_of(const std::string& name) {
  ql::net::Network network =
      ql::net::read_preset(std::string(QL_SHARE) + "/presets/simplebooks-2-" + name + ".json", {},
                           {})
          .network;
  network.vocab_size = kVocabulary;
  return network;
}

// Sums up as many values as the network has weights.
void reading(benchmark::State& state) {
  const ql::bench::OneThread one;
  const at::Tensor weights =
      at::ones({ql::nn::Model(network_of("xl"), at::kFloat).parameter_count()});
  while (state.KeepRunning()) benchmark::DoNotOptimize(weights.sum().data_ptr());
  state.counters["bytes"] = benchmark::Counter(static_cast<double>(weights.nbytes()),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(reading);

// The last argument is 1 for weights of bfloat16.
void generation(benchmark::State& state, const std::string& name, const ql::net::Lengths& lengths) {
  const ql::bench::OneThread one;
  const bool rounded = state.range(1) == 1;
  ql::nn::Model model(network_of(name), at::kFloat);
  model.initialise(1);
  const ql::nn::ModelPrecision precision(
      model, rounded ? ql::machine::Precision::kBfloat16 : ql::machine::Precision::kFloat32);
  const ql::nn::ModelAtLengths at_lengths(model, lengths);
  ql::generate::GenerationOptions options;
  options.samples = state.range(0);
  options.tokens = kTokens;
  ql::generate::Generator generator(at_lengths, "prompt", options);
  const ql::shard::TokenId prompt = 1;
  while (state.KeepRunning()) {
    generator.put(&prompt, 1);
    generator.generate([](const ql::generate::GeneratedToken&) {}, [] {});
  }
  state.SetItemsProcessed(state.iterations() * kTokens * options.samples);
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(kTokens * model.parameter_count() * (rounded ? 2 : 4)),
                         benchmark::Counter::kIsIterationInvariantRate);
}

const ql::net::Lengths kLengths{4, 12, 0}, kCompressive{4, 6, 6};
#define QL_GENERATION(NAME, PRESET, LENGTHS)           \
  BENCHMARK_CAPTURE(generation, NAME, PRESET, LENGTHS) \
      ->ArgNames({"samples", "bfloat16"})              \
      ->ArgsProduct({{1, 8}, {0, 1}})                  \
      ->Unit(benchmark::kMillisecond)
QL_GENERATION(xl, "xl", kLengths);
QL_GENERATION(ql, "ql", kLengths);
QL_GENERATION(compressive, "compressive", kCompressive);

// The tools set up threads before the first tensor, too.
[[maybe_unused]] const ql::machine::ThreadSetup thread_setup = ql::machine::set_up_threads(0);

}  // namespace
