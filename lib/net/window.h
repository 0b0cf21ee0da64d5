// What a query of a layer sees of its window, in states of the layer's input. Index 0 is the first
// state of the segment, negative ones are in the memory, those below in the compressed memory.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

// States of the input: `first`, `first` + `step`, ...
struct StateRun {
  std::int64_t first = 0, count = 1, step = 1;
};

// What the window holds at `index`: a state, or in the compressed memory those it can be made of,
// counted as if they had stayed in the memory (for most-used: any of the run).
StateRun states_at(const Geometry& geometry, const ScaleGeometry& scale, std::int64_t index);

// The distances between two keys that a head sees, each once, in increasing order.
std::vector<std::int64_t> distinct_dilations(const AttentionReach& reach);

// How many keys the query at `index` sees with a dilation, itself among them.
std::int64_t keys_seen(const Geometry& geometry, const ScaleGeometry& scale, std::int64_t index,
                       std::int64_t dilation);

}  // namespace ql::net
