// Sums attention by distance, and measures context lengths by the gradients of a network that reads
// random tokens.

#include "nn/measure.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/process.h"
#include "nn/model_at_lengths.h"

namespace ql::nn {

AttentionMap::AttentionMap(const net::Network& network, const net::Geometry& geometry)
    : rate_(geometry.rate), segment_(geometry.lengths.segment) {
  if (network.attention != net::Attention::kSoftmax) {
    throw ConfigError("attention", "linear attention has no probabilities to show",
                      "leave --attention out");
  }
  if (network.query_only_pooling) {
    throw ConfigError("attention",
                      "query_only_pooling mixes states of two scales in a window, so its distances "
                      "have no single unit",
                      "leave --attention out");
  }
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    inputs_.push_back(stage);
    sums_.push_back(at::zeros({network.n_head, stage.window()}, at::kDouble));
    counts_.emplace_back(static_cast<std::size_t>(stage.window()));
    token_sums_.emplace_back(static_cast<std::size_t>(stage.window()));
  }
}

void AttentionMap::add(std::int64_t layer, const at::Tensor& probabilities,
                       const std::vector<Places>& counted) {
  if (static_cast<std::int64_t>(counted.size()) != probabilities.size(0)) {
    throw std::logic_error("AttentionMap: every row needs the places that count");
  }
  const at::NoGradGuard no_gradient;
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t segment = probabilities.size(2), window = probabilities.size(3);
  for (std::int64_t query = 0; query < segment; ++query) {
    // The newest token of the last state is the last token of the segment.
    const std::int64_t place = segment_ - 1 - (segment - 1 - query) * inputs_[index].stride;
    std::vector<std::int64_t> rows;
    for (std::size_t row = 0; row < counted.size(); ++row) {
      if (counted[row].first <= place && place < counted[row].end) {
        rows.push_back(static_cast<std::int64_t>(row));
      }
    }
    if (rows.empty()) continue;
    const std::int64_t seen = window - segment + query + 1;  // distances 0 .. seen - 1
    const at::Tensor of_query = probabilities.select(2, query).narrow(2, 0, seen);
    sums_[index]
        .narrow(1, 0, seen)
        .add_(of_query.index_select(0, at::tensor(rows).to(of_query.device()))
                  .sum(0, false, at::kDouble)
                  .cpu()
                  .flip(1));
    for (std::int64_t distance = 0; distance < seen; ++distance) {
      const auto slot = static_cast<std::size_t>(distance);
      const auto queries = static_cast<std::int64_t>(rows.size());
      counts_[index][slot] += queries;
      token_sums_[index][slot] += queries * tokens_to(inputs_[index], query, distance);
    }
  }
}

std::int64_t AttentionMap::tokens_to(const net::Stage& input, std::int64_t query,
                                     std::int64_t states) const {
  const std::int64_t plain = query + 1 + input.memory;  // states that are not compressed
  return states < plain ? states * input.stride : plain + (states - plain) * rate_;
}

std::vector<AttentionMap::Distance> AttentionMap::distances() const {
  std::vector<Distance> all;
  for (std::size_t layer = 0; layer < inputs_.size(); ++layer) {
    const net::Stage& stage = inputs_[layer];
    for (std::int64_t head = 0; head < sums_[layer].size(0); ++head) {
      for (std::int64_t states = 0; states < stage.window(); ++states) {
        const auto place = static_cast<std::size_t>(states);
        const std::int64_t queries = counts_[layer][place];
        const double probability = sums_[layer][head][states].item<double>();
        Distance distance{&stage, head, states};
        distance.queries = queries;
        if (queries > 0) {
          const auto count = static_cast<double>(queries);
          distance.tokens = static_cast<double>(token_sums_[layer][place]) / count;
          distance.probability = probability / count;
        } else {
          distance.tokens = static_cast<double>(tokens_to(stage, stage.segment - 1, states));
        }
        all.push_back(distance);
      }
    }
  }
  return all;
}

namespace {

// A graph of more elements than this (16 GiB of float64) is refused.
constexpr double kLargestGraph = 2.0 * (1 << 30);

// Returns for how many output states one backward pass may compute gradients. Each state needs a
// row of the batch, and the graph holds the windows of all layers and steps for every row. Throws
// ConfigError if the graph of one row is too large.
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
    throw ConfigError("measured context",
                      fmt::format("a gradient through all {} steps of this network needs about "
                                  "{:.1f} GiB, more than the limit of {:.0f} GiB",
                                  steps, row * sizeof(double) / (1 << 30),
                                  kLargestGraph * sizeof(double) / (1 << 30)),
                      "use --method exact, or measure shorter segments and memories");
  }
  const double rows = std::max(1.0, static_cast<double>(graph_numbers) / std::max(1.0, row));
  return std::min(static_cast<std::int64_t>(std::min(rows, 1e9)), geometry.lengths.segment);
}

class Measurement {
 public:
  Measurement(const Model& model, const net::Lengths& lengths)
      : model_(model, lengths), segment_(lengths.segment) {
    const std::int64_t reach = net::exact_context(model.network(), lengths).maximum;
    steps_ = (reach + segment_ - 1) / segment_ + 3;
    longest_.assign(static_cast<std::size_t>(segment_), 0);
  }

  std::int64_t tokens() const { return steps_ * segment_; }
  const std::vector<std::int64_t>& longest() const { return longest_; }

  void add_stream(at::Generator& random, std::int64_t graph_numbers) {
    const at::Tensor ids = at::randint(network().vocab_size, {steps_, segment_}, random, at::kLong);
    const std::int64_t rows = rows_at_once(network(), model_.geometry(), steps_, graph_numbers);
    for (std::int64_t first = 0; first < segment_; first += rows) {
      check_for_stop();
      add_positions(ids, first, std::min(rows, segment_ - first), random);
    }
  }

 private:
  // Updates longest_ for `rows` positions of the last segment, from `first` on. Each row of the
  // batch has the same tokens. Row r gives the gradient of the state at position first + r.
  void add_positions(const at::Tensor& ids, std::int64_t first, std::int64_t rows,
                     at::Generator& random) {
    // Each segment is embedded separately, because absolute positions count from the start of a
    // segment.
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
                  "the weights are too large to differentiate: use --method exact");
    }
    const at::Tensor depends = gradient.ne(0).any(-1).to(at::kCPU);  // [rows, tokens]
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t position = first + row;
      const at::Tensor found = depends.select(0, row).nonzero();
      if (found.numel() > 0) {
        std::int64_t& longest = longest_[static_cast<std::size_t>(position)];
        const std::int64_t oldest = found.min().item<std::int64_t>();
        longest = std::max(longest, tokens() - segment_ + position - oldest);
      }
    }
  }

  const net::Network& network() const { return model_.model().network(); }

  // Returns the states of the last segment.
  at::Tensor read(const at::Tensor& embedded) const {
    StepOptions step;
    step.through_memory = true;
    Memory memory = model_.start_memory(embedded.size(0));
    at::Tensor states;
    for (std::int64_t i = 0; i < steps_; ++i) {
      if (network().reset_memory_at_documents) {  // one document, beginning with the first token
        step.document_offsets.assign(static_cast<std::size_t>(embedded.size(0)), i * segment_);
      }
      states = model_.forward_embedded(embedded.narrow(1, i * segment_, segment_), memory, step);
    }
    return states;
  }

  ModelAtLengths model_;
  std::int64_t segment_, steps_ = 0;
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
