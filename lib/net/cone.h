// The cone of an output state: which states of every stage it depends on, down to the tokens. For
// drawings and for those who want to see what net/dependency.h says of the tokens alone.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

// For every stage: [k][i] is whether the output state depends on state i of the segment k steps
// ago, 0 being the step of the output state itself. Of a state that was computed in several steps,
// each version counts for itself; `k` goes as far as there are dependencies in any stage.
using Cone = std::vector<std::vector<std::vector<bool>>>;

// The cone of the output state at `position` (0 to n_s - 1) of a step whose memories are full. Time
// grows with layers, window and context length.
Cone cone_of(const Geometry& geometry, std::int64_t position);

}  // namespace ql::net
