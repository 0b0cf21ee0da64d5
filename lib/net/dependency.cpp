#include "net/dependency.h"

#include <algorithm>
#include <numeric>

#include "net/window.h"

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

std::int64_t oldest_of(const States& states, const StateRun& run) {
  std::int64_t oldest = states.at(run.first);
  for (std::int64_t k = 1; k < run.count && !states.ordered; ++k) {
    oldest = std::min(oldest, states.at(run.first + k * run.step));
  }
  return oldest;
}

// A layer whose queries do not see the whole window, or whose input is not ordered.
void run_limited_layer(States& states, const ScaleGeometry& scale, const Geometry& geometry) {
  const States input = states;
  const std::vector<std::int64_t> dilations = distinct_dilations(scale.reach);
  for (std::int64_t i = 0; i < input.size(); ++i) {
    std::int64_t& oldest = states.segment[static_cast<std::size_t>(i)];
    for (const std::int64_t dilation : dilations) {
      const std::int64_t count = keys_seen(geometry, scale, i, dilation);
      // Ordered states need a look at the first key only.
      for (std::int64_t k = input.ordered ? count - 1 : 0; k < count; ++k) {
        oldest = std::min(oldest, oldest_of(input, states_at(geometry, scale, i - k * dilation)));
      }
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
    states.segment.push_back(oldest_of(fine, {fine.size() - (coarse.segment - i) * rate, rate, 1}));
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
