// Measures tokens a second of the demo's two networks, and the machine's matrix product in the same
// run: a rate means nothing without the other.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "machine/threads.h"
#include "net/cost.h"
#include "net/model_file.h"
#include "nn/model_at_lengths.h"

namespace {

constexpr std::int64_t kVocabulary = 6700;

// Measures the rate of an [n x n] product in units of 1e9 operations a second.
void matrix_product(benchmark::State& state) {
  const at::NoGradGuard no_gradient;
  const std::int64_t n = state.range(0);
  const at::Tensor a = at::rand({n, n});
  const at::Tensor b = at::rand({n, n});
  at::Tensor product = at::empty({n, n});
  while (state.KeepRunning()) {
    at::mm_out(product, a, b);
    benchmark::DoNotOptimize(product.data_ptr());
  }
  state.counters["flops"] = benchmark::Counter(
      2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
      benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(matrix_product)->Arg(512)->Arg(1024)->ArgName("n")->UseRealTime();

// A preset of share/ql/presets as a model with random weights, and a batch of random tokens.
struct Bench {
  explicit Bench(const std::string& preset_name)
      : preset(ql::net::read_preset(std::string(QL_SHARE) + "/presets/" + preset_name + ".json", {},
                                    {})),
        network(with_vocabulary(preset.network)),
        model(network, at::TensorOptions(at::kFloat)),
        at_lengths(model, network.lengths),
        batch(ql::JsonObject(preset.training, preset_name).integer("batch", 1)),
        tokens(at::randint(kVocabulary, {batch, network.lengths.segment}, at::kLong)),
        targets(at::randint(kVocabulary, {batch, network.lengths.segment}, at::kLong)),
        memory(at_lengths.start_memory(batch)) {
    model.initialise(1);
  }

  static ql::net::Network with_vocabulary(ql::net::Network network) {
    network.vocab_size = kVocabulary;
    return network;
  }
  at::Tensor loss(const ql::nn::StepOptions& step) {
    return model.losses(at_lengths.forward(tokens, memory, step), targets).mean();
  }
  // Counts tokens and operations. A backward pass has twice the operations of a forward pass.
  void report(benchmark::State& state, double passes) const {
    const std::int64_t step_tokens = batch * network.lengths.segment;
    state.SetItemsProcessed(state.iterations() * step_tokens);
    state.counters["flops"] =
        benchmark::Counter(passes * static_cast<double>(step_tokens) *
                               ql::net::cost(network, network.lengths).forward_flops_per_token,
                           benchmark::Counter::kIsIterationInvariantRate);
  }

  ql::net::Preset preset;
  ql::net::Network network;
  ql::nn::Model model;
  ql::nn::ModelAtLengths at_lengths;
  std::int64_t batch;
  at::Tensor tokens, targets;
  ql::nn::Memory memory;
};

void train_step(benchmark::State& state, const std::string& preset) {
  Bench bench(preset);
  ql::nn::StepOptions step;
  step.training = true;
  step.seed = 1;
  while (state.KeepRunning()) {
    bench.loss(step).backward();
    for (const ql::nn::NamedTensor& parameter : bench.model.parameters()) {
      parameter.tensor.mutable_grad().reset();
    }
    ++step.step;
  }
  bench.report(state, 3);
}
BENCHMARK_CAPTURE(train_step, demo_ql, "demo-ql")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(train_step, demo_xl, "demo-xl")->Unit(benchmark::kMillisecond)->UseRealTime();

void evaluation_step(benchmark::State& state, const std::string& preset) {
  const at::NoGradGuard no_gradient;
  Bench bench(preset);
  while (state.KeepRunning()) benchmark::DoNotOptimize(bench.loss({}).item<float>());
  bench.report(state, 1);
}
BENCHMARK_CAPTURE(evaluation_step, demo_ql, "demo-ql")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(evaluation_step, demo_xl, "demo-xl")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// The tools set up threads before the first tensor, too.
[[maybe_unused]] const ql::machine::ThreadSetup thread_setup = ql::machine::set_up_threads(0);

}  // namespace
