// Finds the tokens that output states depend on, and from them context lengths (paper, appendix B).
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

// Follows the model's step (lib/nn) with token positions in the place of tensors.

// Returns, for each of the n_s positions of a segment, the oldest token that its output state
// depends on, relative to the segment's first token: 0 or negative at position 0, and never above
// the position. This holds for every step once the memories are full of tokens; the zeros at the
// start of a stream are not tokens.
//
// With Geometry::keeps_most_used the result is the oldest token that an output state can be
// computed from, whichever states are kept. The choice of kept states depends on all earlier
// tokens; this dependency is not counted.
//
// Time and space are proportional to layers and window, for any context length.
std::vector<std::int64_t> oldest_dependencies(const Geometry& geometry);

// The cone of an output state has the states of every stage that it depends on, down to the tokens.
// It serves drawings, and shows the states between the tokens of oldest_dependencies() and the
// output.

// Indexes are cone[stage][k][i]: true when the output state depends on state i of the segment k
// steps ago, where 0 is the step of the output state itself. If a state was computed again in
// several steps, each version counts separately. `k` goes as far as there are dependencies in any
// stage.
using Cone = std::vector<std::vector<std::vector<bool>>>;

// Returns the cone of the output state at `position` (0 to n_s - 1) of a step whose memories are
// full. Time grows with layers, window and context length.
Cone cone_of(const Geometry& geometry, std::int64_t position);

// The context length is the number of past tokens that an output state depends on (paper, appendix
// B).
struct ContextLength {
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
  // Returns (minimum + maximum) / 2, the paper's "average n_c"; it may end in .5.
  double mean() const { return static_cast<double>(minimum + maximum) / 2; }
};

// paper_context() returns the paper's estimate (figure 4, corrected as share/doc/design.md says):
// maximum = minimum + n_s. Compressive layers count n_m and the states that the compressed memory
// is made from. It throws ConfigError as make_geometry does, and if has_paper_context() is false,
// because queries do not see the complete window.
bool has_paper_context(const Network& network);
ContextLength paper_context(const Network& network, const Lengths& lengths);

// Returns the exact lengths, from oldest_dependencies(), for every position of a segment. They
// count past tokens only: a state that depends on tokens t-k .. t has context length k. At a
// stream's start, while memories fill, lengths are shorter; that is not counted.
std::vector<std::int64_t> exact_lengths(const Geometry& geometry);
ContextLength exact_context(const Network& network, const Lengths& lengths);

// Returns the smallest and the largest length over the positions of a segment.
ContextLength range_of(const std::vector<std::int64_t>& lengths);

}  // namespace ql::net
