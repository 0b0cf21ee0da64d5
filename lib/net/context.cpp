// Computes context lengths: exactly, by following states from layer to layer down to the tokens,
// and by the paper's formula.

#include "net/context.h"

#include <numeric>

#include "base/process.h"

namespace ql::net {

namespace {

// Describes the states of a stage, such as a layer's input, in the current segment. For each state,
// `oldest` has the oldest token that it depends on, relative to the segment's first token. States
// of the memory have no entries. If a state of the memory was computed k steps ago at index i, its
// oldest token is oldest[i] - k * n_s.
//
// Usually no state reaches further back than an earlier state of its stage. An exception needs
// attention that is limited to `span` keys, and also dilated attention, a compressed memory, or
// averaging without recurrence (stays_ordered()).
struct States {
  std::vector<std::int64_t> oldest;  // a single entry when all are equal
  bool ordered = true;               // no state reaches further back than an earlier one
};

// Returns the oldest token that any state of `run` depends on. `states` is of stage `run.stage`.
std::int64_t oldest_of(const StateRun& run, const Geometry& geometry, const States& states) {
  std::int64_t oldest = INT64_MAX;
  for (std::int64_t k = 0; k < (states.ordered ? 1 : run.count); ++k) {
    const Origin origin = origin_of(geometry.stages[run.stage], run.first + k * run.step);
    const std::size_t index =
        states.oldest.size() == 1 ? 0 : static_cast<std::size_t>(origin.index);
    oldest = std::min(oldest, states.oldest[index] - origin.steps_back * geometry.lengths.segment);
  }
  return oldest;
}

// Returns false if a state of `stage` may reach further back than an earlier state of `stage`.
// `ordered` is the result for the previous stage.
bool stays_ordered(const Geometry& geometry, std::size_t stage, bool ordered) {
  const Stage& before = geometry.stages[stage - 1];
  switch (geometry.stages[stage].source) {
    case Stage::Source::kLayer:
      // If `span` is 0, each query sees the window's first key, so all queries reach equally far
      // back. If queries see at most `span` keys and there is a compressed memory, the first query
      // of a segment can reach further back than the last query of the previous segment.
      return before.span == 0 ||
             (ordered && geometry.dilations.back() == 1 && before.compressed_memory == 0);
    case Stage::Source::kAveraged:
      // Without recurrence only the later tokens of a segment have coarse states. If queries see at
      // most `span` keys, coarse states may reach further back than the fine states of the first
      // tokens.
      return ordered && (geometry.recurrent || before.span == 0);
    default:
      return ordered;
  }
}

void mark(Cone& cone, const Geometry& geometry, std::size_t stage, std::int64_t step,
          std::int64_t index) {
  const Origin origin = origin_of(geometry.stages[stage], index);
  const auto back = static_cast<std::size_t>(step + origin.steps_back);
  auto& steps = cone[stage];
  if (steps.size() <= back) {
    steps.resize(back + 1,
                 std::vector<bool>(static_cast<std::size_t>(geometry.stages[stage].segment)));
  }
  steps[back][static_cast<std::size_t>(origin.index)] = true;
}

}  // namespace

std::vector<std::int64_t> oldest_dependencies(const Geometry& geometry) {
  std::vector<States> all(geometry.stages.size());
  const auto segment = static_cast<std::size_t>(geometry.lengths.segment);
  all.front().oldest.resize(segment);
  std::iota(all.front().oldest.begin(), all.front().oldest.end(), 0);
  for (std::size_t stage = 1; stage < all.size(); ++stage) {
    const Stage &here = geometry.stages[stage], &before = geometry.stages[stage - 1];
    const bool ordered = all[stage - 1].ordered;
    States& states = all[stage];
    // If `span` is 0, every query sees the window's first key. If the inputs are ordered, no other
    // key reaches further back. Then all queries have the same oldest token.
    const bool equal = here.source == Stage::Source::kLayer && before.span == 0 && ordered;
    states.oldest.resize(equal ? 1 : static_cast<std::size_t>(here.segment), INT64_MAX);
    for (std::size_t i = 0; i < states.oldest.size(); ++i) {
      check_for_stop();
      visit_inputs(geometry, stage, static_cast<std::int64_t>(i), ordered,
                   [&, &oldest = states.oldest[i]](const StateRun& run) {
                     oldest = std::min(oldest, oldest_of(run, geometry, all[run.stage]));
                   });
    }
    states.ordered = stays_ordered(geometry, stage, ordered);
    if (before.feeds_layer()) all[stage - 1].oldest = {};  // only this stage reads them
  }
  std::vector<std::int64_t> oldest = std::move(all.back().oldest);
  oldest.resize(segment, oldest.front());
  return oldest;
}

Cone cone_of(const Geometry& geometry, std::int64_t position) {
  Cone cone(geometry.stages.size());
  mark(cone, geometry, cone.size() - 1, 0, position);
  // A stage depends on earlier stages only, so one pass from last to first is enough.
  for (std::size_t stage = cone.size(); stage-- > 1;) {
    for (std::size_t step = 0; step < cone[stage].size(); ++step) {
      check_for_stop();
      for (std::size_t index = 0; index < cone[stage][step].size(); ++index) {
        if (!cone[stage][step][index]) continue;
        visit_inputs(geometry, stage, static_cast<std::int64_t>(index), false,
                     [&](const StateRun& run) {
                       for (std::int64_t i = 0; i < run.count; ++i) {
                         mark(cone, geometry, run.stage, static_cast<std::int64_t>(step),
                              run.first + i * run.step);
                       }
                     });
      }
    }
  }
  std::size_t steps = 0;
  for (const auto& of_stage : cone) steps = std::max(steps, of_stage.size());
  for (std::size_t stage = 0; stage < cone.size(); ++stage) {
    cone[stage].resize(steps,
                       std::vector<bool>(static_cast<std::size_t>(geometry.stages[stage].segment)));
  }
  return cone;
}

bool has_paper_context(const Network& network) {
  return !network.same_length && network.attention_window == 0;
}

ContextLength paper_context(const Network& network, const Lengths& lengths) {
  const Geometry geometry = make_geometry(network, lengths);
  if (!has_paper_context(network)) {
    throw ConfigError(network.same_length ? "same_length" : "attention_window",
                      "the paper's formula assumes attention to all keys of the window",
                      "compute the exact context length instead");
  }
  ContextLength context;
  for (std::size_t stage = 1; stage < geometry.stages.size(); ++stage) {
    if (geometry.stages[stage].source != Stage::Source::kAveraged) {
      // Adds the distance in tokens from the segment's first token back to the oldest state from
      // which the stage's first state is computed.
      visit_inputs(geometry, stage, 0, true, [&](const StateRun& run) {
        context.minimum -= run.first * geometry.stages[run.stage].stride;
      });
    }
  }
  context.maximum = context.minimum + lengths.segment;
  return context;
}

std::vector<std::int64_t> exact_lengths(const Geometry& geometry) {
  std::vector<std::int64_t> lengths = oldest_dependencies(geometry);
  for (std::size_t position = 0; position < lengths.size(); ++position) {
    lengths[position] = static_cast<std::int64_t>(position) - lengths[position];
  }
  return lengths;
}

ContextLength exact_context(const Network& network, const Lengths& lengths) {
  return range_of(exact_lengths(make_geometry(network, lengths)));
}

ContextLength range_of(const std::vector<std::int64_t>& lengths) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  return {*shortest, *longest};
}

}  // namespace ql::net
