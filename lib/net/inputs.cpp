#include "net/inputs.h"

#include <algorithm>

namespace ql::net {
namespace {

// Returns what the window of a layer's input holds at `index`: a state, or below the memory those
// that a compressed state can be made of.
StateRun states_at(const Geometry& geometry, std::size_t stage, std::int64_t index) {
  const Stage& input = geometry.stages[stage];
  const std::int64_t number = -input.memory - index;  // of a compressed state, 1 is the newest
  if (number <= 0) return {stage, index, 1, 1};
  const std::int64_t rate = geometry.rate, of_step = input.segment / rate;
  const std::int64_t steps = (number - 1) / of_step + 1;  // back to the one it was made in
  const std::int64_t begin = -input.memory - steps * input.segment;  // of what left then
  const std::int64_t place = steps * of_step - number;               // among what it became
  switch (geometry.pool) {
    case Pool::kDilatedConvolution:
      return {stage, begin + place, rate, of_step};
    case Pool::kMostUsed:  // any that has so many before and behind it
      return {stage, begin + place, input.segment - of_step + 1, 1};
    default:
      return {stage, begin + place * rate, rate, 1};
  }
}

// Visits what the layer over a stage sees whose pooled states make queries only.
void visit_pooled(const Geometry& geometry, std::size_t stage, std::int64_t index, bool oldest_key,
                  const std::function<void(const StateRun&)>& visit) {
  const Stage& input = geometry.stages[stage];
  if (input.memory > 0) visit({stage, -input.memory, oldest_key ? 1 : input.memory, 1});
  if (oldest_key && input.memory > 0) return;
  const std::int64_t first = geometry.stages[stage - 1].segment - input.segment_keys();
  visit({stage - 1, first, oldest_key ? 1 : (index + 1) * input.keys_per_state, 1});
  if (!oldest_key) visit({stage, index, 1, 1});
}

}  // namespace

void visit_inputs(const Geometry& geometry, std::size_t stage, std::int64_t index, bool oldest_key,
                  const std::function<void(const StateRun&)>& visit) {
  const Stage& here = geometry.stages[stage];
  const std::size_t before = stage - 1;
  switch (here.source) {
    case Stage::Source::kTokens:
      return;
    case Stage::Source::kLayer: {
      const Stage& input = geometry.stages[before];
      if (input.keys_per_state > 1) {
        visit_pooled(geometry, before, index, oldest_key, visit);
        return;
      }
      for (const std::int64_t dilation : geometry.dilations) {
        const std::int64_t all = (index + input.memory + input.compressed_memory) / dilation + 1;
        const std::int64_t seen = input.span > 0 ? std::min(input.span, all) : all;
        for (std::int64_t k = seen - 1; k >= (oldest_key ? seen - 1 : 0); --k) {
          visit(states_at(geometry, before, index - k * dilation));
        }
      }
      return;
    }
    case Stage::Source::kCompressed: {
      // The last group of `rate` states ends with the segment.
      const std::int64_t behind = (here.segment - index) * geometry.rate;
      visit({before, geometry.stages[before].segment - behind, geometry.rate, 1});
      return;
    }
    case Stage::Source::kAveraged:
      // Every scale gives its last state whose newest token is not after this one. Without
      // recurrence there is none for the first tokens.
      for (const std::size_t output : geometry.outputs) {
        const Stage& scale = geometry.stages[output];
        const std::int64_t complete = (index + 1) / scale.granularity;
        const std::int64_t last = scale.segment - scale.shift + complete - 1;
        if (last >= 0 || geometry.recurrent) visit({output, last, 1, 1});
      }
      return;
  }
}

Origin origin_of(const Stage& stage, std::int64_t index) {
  if (index >= 0) return {0, index};
  const std::int64_t age = -1 - index;
  return {1 + age / stage.shift, stage.shift - 1 - age % stage.shift};
}

std::int64_t first_token(const Stage& stage, const Origin& state) {
  const std::int64_t stride = stage.shift * stage.granularity;
  return stride * (1 - state.steps_back) - (stage.segment - state.index) * stage.granularity;
}

}  // namespace ql::net
