#include "nn/accumulation_internal.h"

#include <algorithm>

namespace ql::nn {

at::Tensor upsample(const at::Tensor& states, const at::Tensor& previous,
                    const net::Stage& output) {
  if (output.granularity == 1) return states;
  // The state before the `shift` new ones serves the tokens before the first new state is complete.
  at::Tensor sources;
  if (output.segment > output.shift) {
    sources = states.narrow(1, output.segment - output.shift - 1, output.shift + 1);
  } else {
    const at::Tensor before =
        previous.defined() ? previous : at::zeros_like(states.narrow(1, 0, 1));
    sources = at::cat({before, states}, 1);
  }
  // Token p takes source (p + 1) / granularity.
  const std::int64_t tokens = output.shift * output.granularity;
  return sources.unsqueeze(2)
      .expand({-1, -1, output.granularity, -1})
      .flatten(1, 2)
      .narrow(1, 1, tokens);
}

at::Tensor average_scales(const std::vector<at::Tensor>& scales, double droppath,
                          const StepOptions& step) {
  if (step.scale_weights.defined()) {
    at::Tensor sum = scales.front() * step.scale_weights.select(0, 0);
    for (std::size_t i = 1; i < scales.size(); ++i) {
      sum = sum + scales[i] * step.scale_weights.select(0, static_cast<std::int64_t>(i));
    }
    return sum;
  }
  const auto count = static_cast<std::int64_t>(scales.size());
  const std::int64_t first = droppath_first_scale(count, droppath, step);
  at::Tensor sum = scales[static_cast<std::size_t>(first)];
  for (std::int64_t i = first + 1; i < count; ++i) sum = sum + scales[static_cast<std::size_t>(i)];
  return count - first > 1 ? sum / static_cast<double>(count - first) : sum;
}

std::vector<double> droppath_weights(std::int64_t scales, double droppath,
                                     const StepOptions& step) {
  const std::int64_t first = droppath_first_scale(scales, droppath, step);
  std::vector<double> weights(static_cast<std::size_t>(scales), 0.0);
  std::fill(weights.begin() + first, weights.end(), 1 / static_cast<double>(scales - first));
  return weights;
}

}  // namespace ql::nn
