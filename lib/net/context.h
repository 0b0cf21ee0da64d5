// Context length: the number of past tokens that an output state depends on (paper, appendix B).
#pragma once

#include <cstdint>

#include "net/geometry.h"

namespace ql::net {

struct ContextLength {
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
  // (minimum + maximum) / 2, the paper's "average n_c"; may end in .5.
  double mean() const { return static_cast<double>(minimum + maximum) / 2; }
};

// The paper's closed form (figure 4, repaired as share/doc/design.md says): maximum = minimum +
// n_s.
ContextLength paper_context(const Network& network, const Lengths& lengths);

// Exact: the interval [oldest, newest] of tokens behind every state is propagated through the
// model's step until it repeats. Past tokens only: a state that depends on tokens t-k .. t has
// context length k.
ContextLength exact_context(const Network& network, const Lengths& lengths);

}  // namespace ql::net
