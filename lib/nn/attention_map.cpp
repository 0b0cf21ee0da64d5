#include "nn/attention_map.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "base/error.h"

namespace ql::nn {

AttentionMap::AttentionMap(const net::Network& network, const net::Geometry& geometry)
    : rate_(geometry.rate), segment_(geometry.lengths.segment) {
  if (network.attention != net::Attention::kSoftmax) {
    throw ConfigError("attention", "linear attention has no probabilities to show");
  }
  if (network.query_only_pooling) {
    throw ConfigError("attention",
                      "with query_only_pooling a window has states of two scales, whose distances "
                      "cannot be told in one unit");
  }
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    inputs_.push_back(stage);
    sums_.push_back(at::zeros({network.n_head, stage.window()}, at::kDouble));
    counts_.emplace_back(static_cast<std::size_t>(stage.window()));
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
    // The newest token of the last state is the last one of the segment.
    const std::int64_t place = segment_ - 1 - (segment - 1 - query) * inputs_[index].granularity;
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
      counts_[index][static_cast<std::size_t>(distance)] += static_cast<std::int64_t>(rows.size());
    }
  }
}

std::vector<AttentionMap::Distance> AttentionMap::distances() const {
  std::vector<Distance> all;
  for (std::size_t layer = 0; layer < inputs_.size(); ++layer) {
    const net::Stage& stage = inputs_[layer];
    const std::int64_t plain = stage.segment + stage.memory;
    for (std::int64_t head = 0; head < sums_[layer].size(0); ++head) {
      for (std::int64_t states = 0; states < stage.window(); ++states) {
        const std::int64_t tokens =
            states < plain ? states * stage.granularity : plain + (states - plain) * rate_;
        const std::int64_t queries = counts_[layer][static_cast<std::size_t>(states)];
        const double sum = sums_[layer][head][states].item<double>();
        all.push_back({&stage, head, states, tokens, queries,
                       queries > 0 ? sum / static_cast<double>(queries) : 0});
      }
    }
  }
  return all;
}

}  // namespace ql::nn
