// The parts of a training step, forward and backward, at a small network's sizes.
#include <benchmark/benchmark.h>
// benchmark first: glog's CHECK must not meet its own.
#include <ATen/ATen.h>

#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/softmax.h"

namespace ql {
namespace {

constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kSegment = 16;
constexpr std::int64_t kModel = 128;

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kFloat).mul_(0.1).set_requires_grad(true);
}

void clear(std::initializer_list<at::Tensor> leaves) {
  for (const at::Tensor& tensor : leaves) {
    tensor.mutable_grad() = at::Tensor();
  }
}

void run_softmax(benchmark::State& state) {
  const std::int64_t vocab = state.range(0);
  const at::Tensor states = leaf({kBatch * kSegment, kModel});
  const at::Tensor weight = leaf({vocab, kModel});
  const at::Tensor bias = leaf({vocab});
  const at::Tensor targets = at::randint(vocab, {kBatch * kSegment}, at::kLong);
  for ([[maybe_unused]] auto _ : state) {
    nn::cross_entropy(states, weight, bias, targets).mean().backward();
    clear({states, weight, bias});
  }
}
BENCHMARK(run_softmax)->Arg(15000)->Arg(33278)->Unit(benchmark::kMillisecond)->UseRealTime();

void run_attention(benchmark::State& state) {
  const std::int64_t memory = state.range(0), heads = 4, d_head = 32;
  nn::AttentionInput input;
  input.queries = leaf({kBatch, kSegment, heads, d_head});
  const at::Tensor keys_values = leaf({kBatch, kSegment + memory, 2, heads, d_head});
  input.keys_values = {keys_values};
  input.positions = leaf({kSegment + memory, heads, d_head});
  input.content_bias = leaf({heads, d_head});
  input.position_bias = leaf({heads, d_head});
  input.probability_kept = nn::dropout_kept({kBatch, heads, kSegment, kSegment + memory}, 0.1,
                                            {true, 1, 1}, {nn::Place::kAttentionProbability});
  input.kept_factor = nn::dropout_factor(0.1);
  for ([[maybe_unused]] auto _ : state) {
    nn::relative_attention(input).sum().backward();
    clear({input.queries, keys_values, input.positions, input.content_bias, input.position_bias});
  }
}
BENCHMARK(run_attention)->Arg(16)->Arg(48)->Unit(benchmark::kMillisecond)->UseRealTime();

void run_dropout(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(nn::dropout_mask({kBatch, kSegment, 4 * kModel}, 0.1, {true, 1, 1},
                                              {nn::Place::kInner}, at::kFloat));
  }
}
BENCHMARK(run_dropout)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace ql
