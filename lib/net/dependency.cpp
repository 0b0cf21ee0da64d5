#include "net/dependency.h"

#include <algorithm>
#include <numeric>

#include "net/inputs.h"

namespace ql::net {
namespace {

// The states of a stage, each given by the oldest token it depends on, relative to the segment's
// first. The memory need not be kept, for every step does the same, a segment of tokens later.
//
// A later state reaches further back than an earlier one only behind layers with a limited window:
// dilated, or in front of a compressed memory. Elsewhere the first of any run of states decides.
struct States {
  std::vector<std::int64_t> oldest;  // one for all where they are equal
  bool ordered = true;               // a later state never reaches further back
};

class Follower {
 public:
  explicit Follower(const Geometry& geometry) : geometry_(geometry), all_(geometry.stages.size()) {
    all_.front().oldest.resize(static_cast<std::size_t>(geometry.lengths.segment));
    std::iota(all_.front().oldest.begin(), all_.front().oldest.end(), 0);
  }

  // Needs the stages before.
  void follow(std::size_t stage) {
    const Stage &here = geometry_.stages[stage], &before = geometry_.stages[stage - 1];
    const bool ordered = all_[stage - 1].ordered;
    States& states = all_[stage];
    // Then every query sees the same oldest state, too.
    const bool equal = here.source == Stage::Source::kLayer && before.span == 0 && ordered;
    states.oldest.resize(equal ? 1 : static_cast<std::size_t>(here.segment), INT64_MAX);
    for (std::size_t i = 0; i < states.oldest.size(); ++i) {
      visit_inputs(geometry_, stage, static_cast<std::int64_t>(i), ordered,
                   [&, &oldest = states.oldest[i]](const StateRun& run) {
                     oldest = std::min(oldest, oldest_of(run));
                   });
    }
    states.ordered = stays_ordered(here, before, ordered);
    if (before.feeds_layer()) {
      all_[stage - 1].oldest = {};  // nothing else reads it
    }
  }

  std::vector<std::int64_t> of_output() && {
    std::vector<std::int64_t>& oldest = all_.back().oldest;
    oldest.resize(static_cast<std::size_t>(geometry_.lengths.segment), oldest.front());
    return std::move(oldest);
  }

 private:
  std::int64_t oldest_of(const StateRun& run) const {
    const States& states = all_[run.stage];
    std::int64_t oldest = INT64_MAX;
    for (std::int64_t k = 0; k < (states.ordered ? 1 : run.count); ++k) {
      const Origin origin = origin_of(geometry_.stages[run.stage], run.first + k * run.step);
      const std::size_t index =
          states.oldest.size() == 1 ? 0 : static_cast<std::size_t>(origin.index);
      oldest =
          std::min(oldest, states.oldest[index] - origin.steps_back * geometry_.lengths.segment);
    }
    return oldest;
  }

  bool stays_ordered(const Stage& here, const Stage& before, bool ordered) const {
    switch (here.source) {
      case Stage::Source::kLayer:
        // With a compressed memory the first query of a segment reaches further than the last one
        // before.
        return before.span == 0 ||
               (ordered && geometry_.dilations.back() == 1 && before.compressed_memory == 0);
      case Stage::Source::kAveraged:
        // Without recurrence only later tokens have coarse states, which may reach further back.
        return ordered && (geometry_.recurrent || before.span == 0);
      default:
        return ordered;
    }
  }

  const Geometry& geometry_;
  std::vector<States> all_;
};

}  // namespace

std::vector<std::int64_t> oldest_dependencies(const Geometry& geometry) {
  Follower follower(geometry);
  for (std::size_t stage = 1; stage < geometry.stages.size(); ++stage) follower.follow(stage);
  return std::move(follower).of_output();
}

}  // namespace ql::net
