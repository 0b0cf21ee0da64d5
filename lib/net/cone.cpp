#include "net/cone.h"

#include <algorithm>

#include "net/inputs.h"

namespace ql::net {
namespace {

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

Cone cone_of(const Geometry& geometry, std::int64_t position) {
  Cone cone(geometry.stages.size());
  mark(cone, geometry, cone.size() - 1, 0, position);
  // A stage depends on stages before it only: one pass from the last to the first is enough.
  for (std::size_t stage = cone.size(); stage-- > 1;) {
    for (std::size_t step = 0; step < cone[stage].size(); ++step) {
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

}  // namespace ql::net
