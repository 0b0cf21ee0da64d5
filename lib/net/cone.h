// The cone of an output state: which states of every layer it depends on, down to the tokens. What
// net/dependency.h says of the tokens alone, for drawings and for those who want to see it.
#pragma once

#include <cstdint>
#include <vector>

#include "net/geometry.h"

namespace ql::net {

// A place of the network where states are: the input of a layer, or the output of a scale's or the
// output block's last layer.
struct Place {
  enum class Source {
    kTokens,      // the embedded tokens
    kLayer,       // a layer over the place below
    kCompressed,  // the output of the scale before, pooled
    kAveraged,    // the outputs of all scales, up-sampled
  };
  Source source = Source::kTokens;
  std::size_t scale = 0;               // 0-based; the number of scales for the output block
  std::int64_t segment = 0;            // states in a step
  std::int64_t memory = 0;             // states kept from earlier steps
  std::int64_t compressed_memory = 0;  // of a Compressive Transformer: states of `rate` such states
  std::int64_t granularity = 1;        // tokens of a state
  std::int64_t shift = 0;              // states that enter the memory in a step
};

// All places from the tokens to the output states, in the order in which a step makes them.
std::vector<Place> places(const Geometry& geometry);

// For every place of places(): [k][i] is whether the output state depends on state i of the segment
// k steps ago, 0 being the step of the output state itself. Of a state that was computed in several
// steps, each version counts for itself; `k` goes as far as there are dependencies in any place.
using Cone = std::vector<std::vector<std::vector<bool>>>;

// The cone of the output state at `position` (0 to n_s - 1) of a step whose memories are full. Time
// grows with layers, window and context length.
Cone cone_of(const Geometry& geometry, std::int64_t position);

// The first token of state `index` of the segment `steps_back` steps ago, relative to the first
// token of the current segment. Its last token is granularity - 1 later. An index below 0 is one of
// the states before the segment: -1 is the newest of the memory.
std::int64_t first_token(const Place& place, std::int64_t steps_back, std::int64_t index);

}  // namespace ql::net
