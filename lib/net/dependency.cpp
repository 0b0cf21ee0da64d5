#include "net/dependency.h"

#include <algorithm>
#include <numeric>

namespace ql::net {
namespace {

// Positions are relative to the segment's first token. Nothing older was seen yet:
constexpr std::int64_t kNothing = INT64_MAX;

// The states at one place of the network (the input of a layer, the output of a scale), each given
// by the oldest token it depends on.
//
// Every step does the same `stride` tokens later, so the memory need not be kept: its states are
// the first `shift` states of the segment as they were one step ago, two steps ago, and so on.
//
// A later state reaches further back than an earlier one only behind layers with a limited window:
// dilated, or in front of a compressed memory. Elsewhere the first of any run of states decides.
struct States {
  std::vector<std::int64_t> segment;
  std::int64_t shift = 0;   // states that enter the memory in a step
  std::int64_t stride = 0;  // tokens in a step
  bool ordered = true;      // a later state never reaches further back

  std::int64_t size() const { return static_cast<std::int64_t>(segment.size()); }

  // Negative indexes reach into the memory: -1 is its newest state.
  std::int64_t at(std::int64_t index) const {
    if (index >= 0) {
      return segment[static_cast<std::size_t>(index)];
    }
    const std::int64_t age = -1 - index;
    const std::int64_t origin = shift - 1 - age % shift;
    return segment[static_cast<std::size_t>(origin)] - stride * (1 + age / shift);
  }
};

// The oldest token of the `count` states from `first` on, `step` apart.
std::int64_t oldest_of(const States& states, std::int64_t first, std::int64_t count,
                       std::int64_t step = 1) {
  std::int64_t oldest = states.at(first);
  for (std::int64_t k = 1; k < count && !states.ordered; ++k) {
    oldest = std::min(oldest, states.at(first + k * step));
  }
  return oldest;
}

// The window of a layer: the segment's states, at negative indexes the memory's, below those the
// compressed memory's, made of the states that left the memory.
struct Window {
  const States& states;
  const ScaleGeometry& scale;
  const Geometry& geometry;

  std::int64_t at(std::int64_t index) const {
    const std::int64_t number = -scale.memory - index;  // of a compressed state, 1 is the newest
    return number > 0 ? compressed(number) : states.at(index);
  }

  std::int64_t compressed(std::int64_t number) const {
    const std::int64_t rate = geometry.rate, of_step = scale.segment / rate;
    const std::int64_t steps = (number - 1) / of_step + 1;  // back to the one it was made in
    const std::int64_t begin = -scale.memory - steps * scale.segment;  // of what left then
    const std::int64_t place = steps * of_step - number;               // among what it became
    switch (geometry.pool) {
      case Pool::kDilatedConvolution:
        return oldest_of(states, begin + place, rate, of_step);
      case Pool::kMostUsed:  // any that has so many before and behind it
        return oldest_of(states, begin + place, scale.segment - of_step + 1);
      default:
        return oldest_of(states, begin + place * rate, rate);
    }
  }
};

// The oldest token that query `i` sees of the window with this dilation, `span` keys at most.
std::int64_t oldest_seen(const Window& window, std::int64_t i, std::int64_t span,
                         std::int64_t dilation) {
  const std::int64_t reachable = i + window.scale.memory + window.geometry.compressed_memory;
  const std::int64_t count = std::min(span, reachable / dilation + 1);
  std::int64_t oldest = window.at(i - (count - 1) * dilation);
  for (std::int64_t k = 0; k + 1 < count && !window.states.ordered; ++k) {
    oldest = std::min(oldest, window.at(i - k * dilation));
  }
  return oldest;
}

// A layer whose queries do not see the whole window, or whose input is not ordered.
void run_limited_layer(States& states, const ScaleGeometry& scale, const Geometry& geometry) {
  const States input = states;
  const Window window{input, scale, geometry};
  std::vector<std::int64_t> dilations = scale.reach.dilations;
  if (dilations.empty()) {
    dilations.push_back(1);
  }
  std::sort(dilations.begin(), dilations.end());
  dilations.erase(std::unique(dilations.begin(), dilations.end()), dilations.end());
  const std::int64_t span =
      scale.reach.limited() ? scale.reach.span : scale.window() + geometry.compressed_memory;
  for (std::int64_t i = 0; i < input.size(); ++i) {
    std::int64_t& oldest = states.segment[static_cast<std::size_t>(i)];
    for (const std::int64_t dilation : dilations) {
      oldest = std::min(oldest, oldest_seen(window, i, span, dilation));
    }
  }
  // With a compressed memory the first query of a segment reaches further than the last one before.
  states.ordered = !scale.reach.limited() ||
                   (input.ordered && dilations.back() == 1 && geometry.compressed_memory == 0);
}

// Layers of causal attention over memory and segment.
void run_layers(States& states, const ScaleGeometry& scale, const Geometry& geometry) {
  if (scale.layers == 0) {
    return;
  }
  std::int64_t left = scale.layers;
  for (; left > 0 && (scale.reach.limited() || !states.ordered); --left) {
    run_limited_layer(states, scale, geometry);
  }
  if (left == 0) {
    return;
  }
  // Every state of the segment sees the same oldest state; after one layer all are equal, and each
  // further layer goes back by as many steps as the oldest memory is old. What leaves the memory
  // of a Compressive Transformer stays in reach, compressed.
  const std::int64_t reach = scale.memory + geometry.compressed_reach;
  const std::int64_t steps_back = reach > 0 ? 1 + (reach - 1) / states.shift : 0;
  const std::int64_t first = states.at(-reach) - (left - 1) * steps_back * states.stride;
  std::fill(states.segment.begin(), states.segment.end(), first);
}

// Pools groups of `rate` states of concat(memory, segment); the last group ends with the segment.
States compress(const States& fine, const ScaleGeometry& coarse, std::int64_t rate) {
  States states;
  states.shift = coarse.shift;
  states.stride = fine.stride;
  states.ordered = fine.ordered;
  for (std::int64_t i = 0; i < coarse.segment; ++i) {
    states.segment.push_back(oldest_of(fine, fine.size() - (coarse.segment - i) * rate, rate));
  }
  return states;
}

// Adds a scale to the average: token p takes the last state whose newest covered token is <= p.
// Without recurrence there is none for the first tokens.
void accumulate(const States& states, const ScaleGeometry& scale, bool recurrent,
                std::vector<std::int64_t>& tokens) {
  for (std::int64_t p = 0; p < states.stride; ++p) {
    const std::int64_t complete = (p + 1) / scale.granularity;  // new states whose tokens are <= p
    const std::int64_t index = states.size() - scale.shift + complete - 1;
    if (index >= 0 || recurrent) {
      std::int64_t& token = tokens[static_cast<std::size_t>(p)];
      token = std::min(token, states.at(index));
    }
  }
}

}  // namespace

std::vector<std::int64_t> oldest_dependencies(const Geometry& geometry) {
  States states;
  states.stride = geometry.lengths.segment;
  states.shift = geometry.lengths.segment;
  states.segment.resize(static_cast<std::size_t>(geometry.lengths.segment));
  std::iota(states.segment.begin(), states.segment.end(), 0);

  std::vector<std::int64_t> tokens(states.segment.size(), kNothing);
  for (std::size_t i = 0; i < geometry.scales.size(); ++i) {
    const ScaleGeometry& scale = geometry.scales[i];
    if (i > 0) {
      states = compress(states, scale, geometry.rate);
    }
    run_layers(states, scale, geometry);
    accumulate(states, scale, geometry.recurrent, tokens);
  }

  States output;
  output.segment = std::move(tokens);
  output.shift = geometry.lengths.segment;
  output.stride = geometry.lengths.segment;
  // Without recurrence only later tokens have coarse states, which may reach further back.
  output.ordered =
      states.ordered && (geometry.recurrent || !geometry.scales.front().reach.limited());
  run_layers(output, geometry.output, geometry);
  return output.segment;
}

}  // namespace ql::net
