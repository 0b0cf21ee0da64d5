#include "nn/measure_context.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "base/signals.h"

namespace ql::nn {
namespace {

// How many positions one backward pass may differentiate: each is a row of a batch, and the graph
// holds the windows of all layers and steps for every row.
std::int64_t rows_at_once(const net::Network& network, const net::Geometry& geometry,
                          std::int64_t steps, std::int64_t graph_numbers) {
  std::int64_t windows = geometry.output.layers * geometry.output.window();
  for (const net::ScaleGeometry& scale : geometry.scales) {
    windows += scale.layers * (scale.window() + geometry.compressed_memory);
  }
  const std::int64_t width = 6 * network.d_model + 2 * network.d_inner;
  const std::int64_t row = std::max<std::int64_t>(1, steps * windows * width);
  return std::clamp<std::int64_t>(graph_numbers / row, 1, geometry.lengths.segment);
}

class Measurement {
 public:
  Measurement(const Model& model, const net::Lengths& lengths)
      : model_(model), geometry_(net::make_geometry(model.network(), lengths)) {
    const std::int64_t segment = lengths.segment;
    const std::int64_t reach = net::exact_context(model.network(), lengths).maximum;
    steps_ = (reach + segment - 1) / segment + 3;
    longest_.assign(static_cast<std::size_t>(segment), 0);
  }

  std::int64_t tokens() const { return steps_ * geometry_.lengths.segment; }
  const std::vector<std::int64_t>& longest() const { return longest_; }

  void add_stream(at::Generator& random, std::int64_t graph_numbers) {
    const at::Tensor ids =
        at::randint(model_.network().vocab_size, {1, tokens()}, random, at::kLong);
    const std::int64_t segment = geometry_.lengths.segment;
    const std::int64_t rows = rows_at_once(model_.network(), geometry_, steps_, graph_numbers);
    for (std::int64_t first = 0; first < segment; first += rows) {
      check_for_stop();
      add_positions(ids, first, std::min(rows, segment - first), random);
    }
  }

 private:
  // Row r of a batch of equal streams differentiates position first + r.
  void add_positions(const at::Tensor& ids, std::int64_t first, std::int64_t rows,
                     at::Generator& random) {
    const std::int64_t segment = geometry_.lengths.segment;
    const at::Tensor embedded = model_.embed(ids).detach().repeat({rows, 1, 1}).requires_grad_();
    const at::Tensor states = read(embedded);
    at::Tensor projection = at::zeros_like(states);
    for (std::int64_t row = 0; row < rows; ++row) {
      at::Tensor state = projection.select(0, row).select(0, first + row);
      state.copy_(at::randn(state.sizes(), random, at::kDouble));
    }
    const at::Tensor gradient = torch::autograd::grad({states}, {embedded}, {projection}).front();
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

  // The states of the last segment.
  at::Tensor read(const at::Tensor& embedded) const {
    StepOptions step;
    step.through_memory = true;
    Memory memory = model_.start_memory(geometry_, embedded.size(0));
    const std::int64_t segment = geometry_.lengths.segment;
    at::Tensor states;
    for (std::int64_t i = 0; i < steps_; ++i) {
      states = model_.forward_embedded(geometry_, embedded.narrow(1, i * segment, segment), memory,
                                       step);
    }
    return states;
  }

  const Model& model_;
  net::Geometry geometry_;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> longest_;
};

}  // namespace

net::ContextLength MeasuredContext::context() const {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  return {*shortest, *longest};
}

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
