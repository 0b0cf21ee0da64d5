#include "nn/measure_context.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/signals.h"
#include "nn/model_at_lengths.h"

namespace ql::nn {
namespace {

// A graph of more numbers than this (16 GiB of float64) is refused.
constexpr double kLargestGraph = 2.0 * (1 << 30);

// Returns how many positions one backward pass may differentiate. Each is a row of a batch, and the
// graph holds the windows of all layers and steps for every row. Throws ConfigError when even one
// is too much.
std::int64_t rows_at_once(const net::Network& network, const net::Geometry& geometry,
                          std::int64_t steps, std::int64_t graph_numbers) {
  double windows = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const net::Network of_stage = network.of_scale(stage.scale);
    windows += static_cast<double>(stage.window()) *
               static_cast<double>(6 * of_stage.d_model + 2 * of_stage.d_inner);
  }
  const double row = static_cast<double>(steps) * windows;
  if (row > kLargestGraph) {
    throw ConfigError(
        "measured context",
        fmt::format("a gradient through all {} steps of this network needs about {:.0f} GiB", steps,
                    row * sizeof(double) / (1 << 30)),
        "ask for the exact length, or measure shorter segments and memories");
  }
  const double rows = std::max(1.0, static_cast<double>(graph_numbers) / std::max(1.0, row));
  return std::min(static_cast<std::int64_t>(std::min(rows, 1e9)), geometry.lengths.segment);
}

class Measurement {
 public:
  Measurement(const Model& model, const net::Lengths& lengths) : model_(model, lengths) {
    const std::int64_t segment = lengths.segment;
    const std::int64_t reach = net::exact_context(model.network(), lengths).maximum;
    steps_ = (reach + segment - 1) / segment + 3;
    longest_.assign(static_cast<std::size_t>(segment), 0);
  }

  std::int64_t tokens() const { return steps_ * model_.geometry().lengths.segment; }
  const std::vector<std::int64_t>& longest() const { return longest_; }

  void add_stream(at::Generator& random, std::int64_t graph_numbers) {
    const at::Tensor ids = at::randint(
        network().vocab_size, {steps_, model_.geometry().lengths.segment}, random, at::kLong);
    const std::int64_t segment = model_.geometry().lengths.segment;
    const std::int64_t rows = rows_at_once(network(), model_.geometry(), steps_, graph_numbers);
    for (std::int64_t first = 0; first < segment; first += rows) {
      check_for_stop();
      add_positions(ids, first, std::min(rows, segment - first), random);
    }
  }

 private:
  // Row r of a batch of equal streams differentiates position first + r.
  void add_positions(const at::Tensor& ids, std::int64_t first, std::int64_t rows,
                     at::Generator& random) {
    const std::int64_t segment = model_.geometry().lengths.segment;
    // Segments are embedded one by one, as they are read: absolute positions count from the start
    // of each.
    const at::Tensor stream = model_.model().embed(ids).detach().flatten(0, 1);
    const at::Tensor embedded = stream.repeat({rows, 1, 1}).requires_grad_();
    const at::Tensor states = read(embedded);
    at::Tensor projection = at::zeros_like(states);
    for (std::int64_t row = 0; row < rows; ++row) {
      at::Tensor state = projection.select(0, row).select(0, first + row);
      state.copy_(at::randn(state.sizes(), random, at::kDouble));
    }
    const at::Tensor gradient = torch::autograd::grad({states}, {embedded}, {projection}).front();
    if (!at::isfinite(gradient).all().item<bool>()) {
      throw Error("measured context", "a gradient is not finite",
                  "the weights are too large to differentiate: ask for the exact length");
    }
    const at::Tensor depends = gradient.ne(0).any(-1).to(at::kCPU);  // [rows, tokens]
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t position = first + row;
      const at::Tensor found = depends.select(0, row).nonzero();
      if (found.numel() > 0) {
        std::int64_t& longest = longest_[static_cast<std::size_t>(position)];
        const std::int64_t oldest = found.min().item<std::int64_t>();
        longest = std::max(longest, tokens() - segment + position - oldest);
      }
    }
  }

  const net::Network& network() const { return model_.model().network(); }

  // The states of the last segment.
  at::Tensor read(const at::Tensor& embedded) const {
    StepOptions step;
    step.through_memory = true;
    Memory memory = model_.start_memory(embedded.size(0));
    const std::int64_t segment = model_.geometry().lengths.segment;
    at::Tensor states;
    for (std::int64_t i = 0; i < steps_; ++i) {
      if (network().reset_memory_at_documents) {  // one document, from the first token on
        step.ages.assign(static_cast<std::size_t>(embedded.size(0)), i * segment);
      }
      states = model_.forward_embedded(embedded.narrow(1, i * segment, segment), memory, step);
    }
    return states;
  }

  ModelAtLengths model_;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> longest_;
};

}  // namespace

MeasuredContext measure_context(const Model& model, const net::Lengths& lengths,
                                const MeasureOptions& options) {
  Measurement measurement(model, lengths);
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  std::vector<std::int64_t> before;
  std::int64_t streams = 0;
  while (streams < options.streams && measurement.longest() != before) {
    before = measurement.longest();
    measurement.add_stream(random, options.graph_numbers);
    ++streams;
  }
  return {measurement.longest(), streams, measurement.tokens()};
}

}  // namespace ql::nn
