// Finds what every output state depends on: plays the model's step (lib/nn) with token positions in
// the place of tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

// For each of the n_s positions of a segment, the oldest token that its output state depends on,
// relative to the segment's first token: 0 or negative at position 0, never above the position.
// Holds for every step once the memories are full of tokens; zeros of a stream's start are none.
//
// With Geometry::keeps_most_used it is the oldest token that an output state can be computed from,
// whichever states are kept. Which they are depends on all earlier tokens, and is left out.
//
// Time and space are proportional to layers and window, whatever the context length.
std::vector<std::int64_t> oldest_dependencies(const Geometry& geometry);

}  // namespace ql::net
