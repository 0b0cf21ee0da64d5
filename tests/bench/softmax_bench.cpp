// Measures the softmax of a training step, forward and backward, and its matrix products alone.
// Both are timed in turn: `ratio` is that of their medians, `work_ratio` that of processor times.
// `largest_MiB` is the largest tensor that the softmax allocates, `sum_MiB` the sum over all its
// tensors.
#include <benchmark/benchmark.h>

// benchmark is included first: its CHECK must not collide with glog's.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <errno.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "kernels/softmax.h"
#include "machine/threads.h"
#include "net/cost.h"
#include "nn/model.h"

namespace {

std::atomic<std::size_t> largest_allocation{0}, sum_of_allocations{0};

}  // namespace

// LibTorch allocates tensors with this function. The program's own version takes precedence over
// the C library's.
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  std::size_t largest = largest_allocation;
  while (size > largest && !largest_allocation.compare_exchange_weak(largest, size)) {
  }
  sum_of_allocations += size;
  *memory = ::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  return *memory == nullptr ? ENOMEM : 0;
}

namespace ql {
namespace {

struct Shape {
  std::int64_t rows, d_model, vocab_size;
  std::vector<std::int64_t> cutoffs;
  std::int64_t div_val;

  net::Network network() const {
    net::Network network;
    network.vocab_size = vocab_size;
    network.d_model = d_model;
    network.n_head = 1;
    network.d_head = network.d_inner = 1;
    network.cutoffs = cutoffs;
    network.div_val = div_val;
    network.scales = {1};
    network.lengths = {4, 4, 0};
    network.check();
    return network;
  }
};

const Shape kSimpleBooks512{512, 256, 11492, {}, 1};
const Shape kSimpleBooks1024{1024, 256, 11492, {}, 1};
const Shape kWikiText103{4096, 1024, 267735, {20000, 40000, 200000}, 4};
const Shape kWikiText103Shared{1024, 256, 267735, {20000, 40000, 200000}, 1};

struct SoftmaxProblem {
  explicit SoftmaxProblem(const Shape& shape) {
    parameters = nn::make_parameters(shape.network(), at::kFloat);
    {
      const at::NoGradGuard no_gradient;
      for (const nn::NamedTensor& parameter : parameters.flat.named) {
        at::Tensor tensor = parameter.tensor;
        tensor.normal_(0, 0.02);
      }
    }
    weights = parameters.softmax;
    states = at::randn({shape.rows, shape.d_model}).set_requires_grad(true);
    targets = at::empty({shape.rows}, at::kLong);
    // By Zipf's law the probability of id i is proportional to 1 / (i + 1). It is drawn by the
    // inverse of the logarithm that approximates the sum.
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> uniform(0, std::log(shape.vocab_size + 1.0));
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      targets.data_ptr<std::int64_t>()[row] =
          std::min(static_cast<std::int64_t>(std::exp(uniform(random))) - 1, shape.vocab_size - 1);
    }
    const kernels::ClusterRows rows = kernels::rows_by_cluster(targets, weights.ends);
    std::int64_t most = 0;
    for (std::size_t i = 0; i < weights.ends.size(); ++i) {
      const std::int64_t ids = weights.ends[i] - (i > 0 ? weights.ends[i - 1] : 0);
      clusters.push_back({i > 0 ? rows.count(i) : shape.rows, ids});
      most = std::max(most, clusters.back().rows * ids);
    }
    probabilities = at::rand({most});
    weight_gradient = at::empty(weights.weights.front().sizes());
  }

  // The products are logits, the gradients of states and weight, and the three products of a
  // projection.
  void products() {
    const at::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < clusters.size(); ++i) {
      const auto [rows, ids] = clusters[i];
      if (rows == 0) continue;
      const bool shared = weights.weights.size() < clusters.size();
      const at::Tensor weight =
          shared ? weights.weights[0].narrow(0, weights.ends[i] - ids, ids) : weights.weights[i];
      at::Tensor own_states = states.narrow(0, 0, rows), gradient = at::empty_like(own_states);
      const at::Tensor& projection = weights.projections[i];
      at::Tensor projected = own_states, projected_gradient = gradient;
      if (projection.defined()) {
        projected = at::empty({rows, weight.size(1)});
        projected_gradient = at::empty_like(projected);
        at::mm_out(projected, own_states, projection);
      }
      at::Tensor matrix = probabilities.narrow(0, 0, rows * ids).view({rows, ids});
      at::Tensor column_gradient = weight_gradients(ids, weight.size(1));
      at::mm_out(matrix, projected, weight.t());
      at::mm_out(projected_gradient, matrix, weight);
      at::mm_out(column_gradient, matrix.t(), projected);
      if (projection.defined()) {
        at::Tensor projection_gradient = at::empty_like(projection);
        at::mm_out(gradient, projected_gradient, projection.t());
        at::mm_out(projection_gradient, own_states.t(), projected_gradient);
      }
    }
  }
  at::Tensor weight_gradients(std::int64_t ids, std::int64_t width) {
    if (weight_gradient.numel() < ids * width) weight_gradient = at::empty({ids * width});
    return weight_gradient.flatten().narrow(0, 0, ids * width).view({ids, width});
  }

  void softmax() {
    kernels::cross_entropy_sum(states, weights, targets, 1 / static_cast<double>(states.size(0)))
        .backward();
    states.mutable_grad().reset();
    for (const nn::NamedTensor& parameter : parameters.flat.named) {
      parameter.tensor.mutable_grad().reset();
    }
  }
  void losses() {
    const at::NoGradGuard no_gradient;
    kernels::cross_entropy(states, weights, targets);
  }

  struct Cluster {
    std::int64_t rows, ids;
  };
  std::vector<Cluster> clusters;
  nn::Parameters parameters;
  kernels::SoftmaxWeights weights;
  at::Tensor states, targets, probabilities, weight_gradient;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Milliseconds by the clock, and of all threads' work. Only the latter is reliable on a busy
// machine.
struct Times {
  std::vector<double> wall, work;

  template <typename Run>
  void take(const Run& run) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t work_start = std::clock();
    run();
    wall.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
    work.push_back(1e3 * static_cast<double>(std::clock() - work_start) / CLOCKS_PER_SEC);
  }
};

void training(benchmark::State& state, const Shape& shape) {
  machine::set_up_threads(static_cast<int>(state.range(0)));
  SoftmaxProblem problem(shape);
  Times products, softmax, losses;
  problem.products();
  problem.softmax();
  largest_allocation = 0;
  sum_of_allocations = 0;
  problem.softmax();
  state.counters["largest_MiB"] = static_cast<double>(largest_allocation) / (1 << 20);
  state.counters["sum_MiB"] = static_cast<double>(sum_of_allocations) / (1 << 20);
  for ([[maybe_unused]] auto _ : state) {
    products.take([&] { problem.products(); });
    softmax.take([&] { problem.softmax(); });
    losses.take([&] { problem.losses(); });
    state.SetIterationTime(softmax.wall.back() / 1e3);
  }
  state.counters["products_ms"] = median(products.wall);
  state.counters["losses_ms"] = median(losses.wall);
  state.counters["ratio"] = median(softmax.wall) / median(products.wall);
  state.counters["work_ratio"] = median(softmax.work) / median(products.work);
  machine::set_up_threads(0);
}
#define QL_SOFTMAX(NAME, SHAPE, ITERATIONS) \
  BENCHMARK_CAPTURE(training, NAME, SHAPE)  \
      ->ArgName("threads")                  \
      ->Arg(1)                              \
      ->Arg(2)                              \
      ->Iterations(ITERATIONS)              \
      ->Unit(benchmark::kMillisecond)       \
      ->UseManualTime()
QL_SOFTMAX(softmax_simplebooks_512, kSimpleBooks512, 15);
QL_SOFTMAX(softmax_simplebooks_1024, kSimpleBooks1024, 15);
QL_SOFTMAX(softmax_wikitext103, kWikiText103, 3);
QL_SOFTMAX(softmax_wikitext103_shared, kWikiText103Shared, 3);

const std::vector<std::vector<std::int64_t>> kDivisions{{},
                                                        {100},
                                                        {1000},
                                                        {4000},
                                                        {20000},
                                                        {300, 5000},
                                                        {1000, 8000},
                                                        {4500, 9000},
                                                        {4500, 20000},
                                                        {100, 800, 6000},
                                                        {500, 2500, 12000},
                                                        {1000, 5000, 20000},
                                                        {2000, 6000, 20000},
                                                        {4500, 9000, 30000},
                                                        {8000, 16000, 32000}};

// Measures one division of a vocabulary whose clusters have equal widths. `columns` is the time
// that cost.cpp expects, in columns for each row, so `ns_per_column` should be the same for all
// divisions.
void division(benchmark::State& state) {
  const std::vector<std::int64_t>& cutoffs = kDivisions[static_cast<std::size_t>(state.range(1))];
  machine::set_up_threads(1);
  const Shape shape{1024, state.range(0), 40000, cutoffs, 1};
  SoftmaxProblem problem(shape);
  std::vector<std::int64_t> counts;
  for (std::int64_t id = 1; id <= shape.vocab_size; ++id) counts.push_back(1000000000 / id);
  Times softmax;
  problem.softmax();
  for ([[maybe_unused]] auto _ : state) {
    softmax.take([&] { problem.softmax(); });
    state.SetIterationTime(softmax.wall.back() / 1e3);
  }
  const double columns = net::softmax_columns(shape.network(), counts);
  state.counters["columns"] = columns;
  state.counters["work_ms"] = median(softmax.work);
  state.counters["ns_per_column"] =
      1e6 * median(softmax.work) / (columns * static_cast<double>(shape.rows));
  machine::set_up_threads(0);
}
BENCHMARK(division)
    ->ArgNames({"width", "division"})
    ->ArgsProduct({{256, 1024}, benchmark::CreateDenseRange(0, 14, 1)})
    ->Iterations(7)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

}  // namespace
}  // namespace ql
