// Finds the tokens that output states depend on, and computes context lengths (paper, appendix B).
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

// These functions trace the forward pass of lib/nn with token positions instead of tensors.

// Returns, for each of the n_s positions of a segment, the position of the oldest token that the
// output state there depends on. Positions count from the segment's first token: the result for
// position p is at most p, and negative for tokens before the segment. The result holds for every
// step whose memories are filled with states of tokens; the zeros in memories at the start of a
// stream are not tokens.
//
// With Geometry::keeps_most_used(), attention chooses which old states the compressed memory keeps.
// The result is then the oldest token over all possible choices. The choice itself depends on all
// earlier tokens; this dependency is not counted.
//
// Time and memory grow with the number of layers and the window, but not with the context length.
std::vector<std::int64_t> oldest_dependencies(const Geometry& geometry);

// The cone of an output state is the set of all states, and all tokens, on which the output state
// depends. qlctx prints the cone.

// cone[stage][k][i] is for state i of Geometry::stages[stage], computed k steps before the output
// state. It is true when the output state depends on that state. If a state was computed again in
// several steps, each version counts separately. All stages have entries for the same number of
// steps, back to the oldest step that the cone reaches.
using Cone = std::vector<std::vector<std::vector<bool>>>;

// Returns a Cone that marks all states on which the output state at `position` (0 to n_s - 1)
// depends, in a step whose memories are full. Time grows with layers, window and context length.
Cone cone_of(const Geometry& geometry, std::int64_t position);

// The context length is the distance in tokens from an output state back to the oldest token that
// it depends on (paper, appendix B).
struct ContextLength {
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
  // Returns (minimum + maximum) / 2, the paper's "average n_c"; it may end in .5.
  double mean() const { return static_cast<double>(minimum + maximum) / 2; }
};

// has_paper_context() returns true if queries see the complete window, as the paper's estimate
// assumes. paper_context() returns this estimate (figure 4, corrected as share/doc/design.md
// states), with maximum = minimum + n_s. Each layer of a Compressive Transformer adds n_m and the
// number of states from which the compressed memory is made. Throws the ConfigErrors of
// make_geometry(), and ConfigError if has_paper_context() is false.
bool has_paper_context(const Network& network);
ContextLength paper_context(const Network& network, const Lengths& lengths);

// Returns the exact context length at every position of a segment, by oldest_dependencies().
// The token at the position itself is not counted: a state that depends on tokens t-k .. t has
// context length k. At a stream's start, while memories fill, context lengths are shorter; the
// result ignores these steps.
std::vector<std::int64_t> exact_lengths(const Geometry& geometry);
ContextLength exact_context(const Network& network, const Lengths& lengths);

// Returns the smallest and the largest length over the positions of a segment.
ContextLength range_of(const std::vector<std::int64_t>& lengths);

}  // namespace ql::net
