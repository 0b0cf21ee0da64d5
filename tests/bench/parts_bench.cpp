// Measures the parts of a training step, forward and backward, at a small network's sizes.
#include <benchmark/benchmark.h>
// benchmark is included first: its CHECK must not collide with glog's.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/attention.h"
#include "kernels/softmax.h"
#include "machine/threads.h"
#include "nn/dropout.h"
#include "one_thread.h"

namespace ql {
namespace {

constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kSegment = 16;
constexpr std::int64_t kModel = 128;

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kFloat).mul_(0.1).set_requires_grad(true);
}

void clear(std::initializer_list<at::Tensor> leaves) {
  for (const at::Tensor& tensor : leaves) tensor.mutable_grad() = at::Tensor();
}

void run_softmax(benchmark::State& state) {
  const std::int64_t vocab = state.range(0);
  const at::Tensor states = leaf({kBatch * kSegment, kModel});
  const at::Tensor weight = leaf({vocab, kModel});
  const at::Tensor bias = leaf({vocab});
  const at::Tensor targets = at::randint(vocab, {kBatch * kSegment}, at::kLong);
  const kernels::SoftmaxWeights weights{{vocab}, {weight}, {bias}, {at::Tensor()}, {}, {}};
  for ([[maybe_unused]] auto _ : state) {
    kernels::cross_entropy(states, weights, targets).mean().backward();
    clear({states, weight, bias});
  }
}
BENCHMARK(run_softmax)->Arg(15000)->Arg(33278)->Unit(benchmark::kMillisecond)->UseRealTime();

// The matrix product that attention is compared with.
void run_product(benchmark::State& state) {
  const bench::OneThread one;
  const std::int64_t size = 512;
  const at::Tensor a = at::randn({size, size}), b = at::randn({size, size});
  at::Tensor c = at::empty({size, size});
  for ([[maybe_unused]] auto _ : state) at::mm_out(c, a, b);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(size * size * size),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(run_product)->Unit(benchmark::kMillisecond);

struct AttentionShape {
  std::int64_t batch, heads, d_head, segment, window, span = 0, dilation = 1;
};
constexpr AttentionShape kAttentionShapes[] = {
    {128, 4, 64, 8, 16},           // SimpleBooks-2, many short segments
    {16, 4, 64, 64, 128},          // the same, long ones
    {8, 8, 64, 128, 256},          // characters
    {1, 8, 64, 256, 2048},         // a long memory
    {8, 8, 64, 128, 512, 32, 1},   // a narrow window
    {8, 8, 64, 128, 512, 32, 16},  // and a wide one with holes
    {64, 4, 64, 1, 64},            // one token at a time
    {4, 2, 33, 17, 41},            // no size that fits
    {16, 4, 64, 8, 16},            // a micro-batch of the first batch
};

enum class ModelPass { kEvaluation, kForward, kBoth };

kernels::AttentionInput attention_input(const AttentionShape& shape, ModelPass pass) {
  kernels::AttentionInput input;
  input.queries = leaf({shape.batch, shape.segment, shape.heads, shape.d_head});
  input.keys_values = {leaf({shape.batch, shape.window, 2, shape.heads, shape.d_head})};
  input.positions = leaf({shape.window, shape.heads, shape.d_head});
  input.content_bias = leaf({shape.heads, shape.d_head});
  input.position_bias = leaf({shape.heads, shape.d_head});
  input.reach.span = shape.span;
  if (shape.dilation > 1) {
    input.reach.dilations.assign(static_cast<std::size_t>(shape.heads), shape.dilation);
  }
  if (pass == ModelPass::kEvaluation) {
    // The window consists of memory and segment. Streams of the memory are one state apart.
    const std::int64_t memory = shape.window - shape.segment;
    const at::Tensor segment = input.keys_values.front().narrow(1, memory, shape.segment);
    const at::Tensor states = at::randn({shape.batch + memory, 2, shape.heads, shape.d_head});
    input.keys_values = {states.unfold(0, memory + 1, 1).movedim(-1, 1).narrow(1, 0, memory),
                         segment.contiguous()};
    return input;
  }
  input.dropout = nn::dropout_draw({shape.batch, shape.heads, shape.segment, shape.window}, 0.1,
                                   {true, 1, 1}, {nn::DropoutSite::kAttentionProbability});
  return input;
}

// Counts three products forward and six backward for every pair of a query and a key that it sees.
double attention_operations(const AttentionShape& shape, ModelPass pass) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < shape.segment; ++i) {
    const std::int64_t keys = (shape.window - shape.segment + i) / shape.dilation + 1;
    pairs += shape.span > 0 ? std::min(shape.span, keys) : keys;
  }
  const double products = pass == ModelPass::kBoth ? 9 : 3;
  return products * 2 * static_cast<double>(pairs * shape.d_head * shape.batch * shape.heads);
}

void run_attention(benchmark::State& state) {
  const bench::OneThread one;
  const AttentionShape& shape = kAttentionShapes[state.range(0)];
  const auto pass = static_cast<ModelPass>(state.range(1));
  const kernels::AttentionInput input = attention_input(shape, pass);
  const at::Tensor gradient = at::randn(input.queries.sizes());
  const at::AutoGradMode mode(pass != ModelPass::kEvaluation);
  for ([[maybe_unused]] auto _ : state) {
    const at::Tensor sums = kernels::relative_attention(input);
    if (pass == ModelPass::kBoth) {
      sums.backward(gradient);
      clear({input.queries, input.keys_values.front(), input.positions, input.content_bias,
             input.position_bias});
    }
  }
  state.counters["GFLOP/s"] = benchmark::Counter(1e-9 * attention_operations(shape, pass),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(run_attention)
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::size(kAttentionShapes) - 1, 1),
                   benchmark::CreateDenseRange(0, 2, 1)})
    ->ArgNames({"shape", "pass"})
    ->Unit(benchmark::kMillisecond);

// Measures nanoseconds an element: dropout as factors, and as bytes.
void run_dropout(benchmark::State& state) {
  const bench::OneThread one;
  const std::vector<std::int64_t> shape = {kBatch, kSegment, 4 * kModel};
  const nn::StepOptions step{true, 1, 1};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(
        state.range(0) == 0
            ? nn::dropout_mask(shape, 0.1, step, {nn::DropoutSite::kInner}, at::kFloat)
            : nn::dropout_kept(shape, 0.1, step, {nn::DropoutSite::kInner}));
  }
  state.counters["elements/s"] =
      benchmark::Counter(static_cast<double>(kBatch * kSegment * 4 * kModel),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(run_dropout)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ql
