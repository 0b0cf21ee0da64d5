// Knows what the states of a stage are made from, for all who follow states through the network
// without tensors.
#pragma once

#include <cstdint>
#include <functional>

#include "net/geometry.h"

namespace ql::net {

// States `first`, `first` + `step`, ... of a stage. Index 0 is the first state of the segment, -1
// the newest of the memory. What a compressed memory was made of counts as if it had stayed in the
// memory.
struct StateRun {
  std::size_t stage = 0;
  std::int64_t first = 0, count = 1, step = 1;
};

// Calls visit() for all that state `index` of the segment of a stage is made from, the tokens
// excepted. Of what a layer sees through each dilation, the oldest key comes first; `oldest_key`:
// it alone. Where the most used states are kept, a run has all that the key can be.
void visit_inputs(const Geometry& geometry, std::size_t stage, std::int64_t index, bool oldest_key,
                  const std::function<void(const StateRun&)>& visit);

// Every step does the same, so a state of the memory is one of the first `shift` states of the
// segment some steps ago. `index` is 0 or more.
struct Origin {
  std::int64_t steps_back = 0, index = 0;
};
Origin origin_of(const Stage& stage, std::int64_t index);

// The first token of a state, relative to the first token of the current segment. Its last token is
// granularity - 1 later.
std::int64_t first_token(const Stage& stage, const Origin& state);

}  // namespace ql::net
