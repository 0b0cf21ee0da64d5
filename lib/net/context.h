// Context length: the number of past tokens that an output state depends on (paper, appendix B).
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

struct ContextLength {
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
  // (minimum + maximum) / 2, the paper's "average n_c"; may end in .5.
  double mean() const { return static_cast<double>(minimum + maximum) / 2; }
};

// The paper's estimate (figure 4, repaired as share/doc/design.md says): maximum = minimum + n_s.
// Compressive layers count n_m and the states that the compressed memory is made from. Throws
// ConfigError as make_geometry does, and where a query does not see the whole window.
bool has_paper_context(const Network& network);
ContextLength paper_context(const Network& network, const Lengths& lengths);

// Exact, from oldest_dependencies (net/dependency.h), for every position of a segment. Past tokens
// only: a state that depends on tokens t-k .. t has context length k. The length of a stream's
// start, while memories fill, is shorter and does not count.
std::vector<std::int64_t> exact_lengths(const Geometry& geometry);
ContextLength exact_context(const Network& network, const Lengths& lengths);

// The smallest and the largest over the positions of a segment.
ContextLength range_of(const std::vector<std::int64_t>& lengths);

}  // namespace ql::net
