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
// A later state never reaches further back than an earlier one: so it is with the tokens, and every
// operation below keeps it so. Of any run of states, the first therefore decides.
struct States {
  std::vector<std::int64_t> segment;
  std::int64_t shift = 0;   // states that enter the memory in a step
  std::int64_t stride = 0;  // tokens in a step

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

// Layers of causal attention over the `reach` newest states of the memory and over the segment.
void run_layers(States& states, const ScaleGeometry& scale, std::int64_t reach) {
  if (scale.layers == 0) {
    return;
  }
  // Every state of the segment sees the same oldest state; after one layer all are equal, and each
  // further layer goes back by as many steps as the oldest memory is old.
  const std::int64_t steps_back = reach > 0 ? 1 + (reach - 1) / states.shift : 0;
  const std::int64_t first = states.at(-reach) - (scale.layers - 1) * steps_back * states.stride;
  std::fill(states.segment.begin(), states.segment.end(), first);
}

// Pools groups of `rate` states of concat(memory, segment); the last group ends with the segment.
States compress(const States& fine, const ScaleGeometry& coarse, std::int64_t rate) {
  States states;
  states.shift = coarse.shift;
  states.stride = fine.stride;
  for (std::int64_t i = 0; i < coarse.segment; ++i) {
    states.segment.push_back(fine.at(fine.size() - (coarse.segment - i) * rate));
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
    // What leaves the memory of a Compressive Transformer stays in reach, c states in one.
    run_layers(states, scale, scale.memory + geometry.compressed_memory * geometry.rate);
    accumulate(states, scale, geometry.recurrent, tokens);
  }

  States output;
  output.segment = std::move(tokens);
  output.shift = geometry.lengths.segment;
  output.stride = geometry.lengths.segment;
  run_layers(output, geometry.output, geometry.output.memory);
  return output.segment;
}

}  // namespace ql::net
