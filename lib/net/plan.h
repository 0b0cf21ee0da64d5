// Finds the cheapest networks and lengths that reach a given context.
#pragma once

#include <cstdint>
#include <vector>

#include "net/context.h"
#include "net/cost.h"
#include "net/network.h"

namespace ql::net {

struct Plan {
  Network network;
  Lengths lengths;
  ContextLength context;  // exact_context
  Cost cost;
};

// Longer contexts than this are not planned, because computing the exact context lengths of long
// segments takes long.
constexpr std::int64_t kMaxPlannedContext = std::int64_t{1} << 20;
// divisions_of_layers considers no more scales than this.
constexpr std::size_t kMaxPlannedScales = 3;

// Returns `network` with `layers` layers distributed in all ways that `architecture` allows.
// Transformer-QL and Multi-scale get two or three scales and an output block, which may be empty;
// each division is combined with each of the rates. (With one scale they would be a Transformer-XL
// and a vanilla network.) Other architectures get one scale, and the Compressive Transformer gets
// each of the rates. Keys that an architecture cannot have get their defaults: the pools and the
// loss of Compressive, absolute encoding, the keys of several scales, same_length and
// reset_memory_at_documents. If scale_widths are given, networks of several scales have one scale
// for each of these widths.
std::vector<Network> divisions_of_layers(const Network& network, Architecture architecture,
                                         std::int64_t layers,
                                         const std::vector<std::int64_t>& rates);

// Returns the plans that have a context of at least `context` tokens and that no other plan
// dominates. A plan dominates another one if it has fewer operations per token and no more memory,
// or less memory and no more operations. The plans are sorted by operations per token, then by
// states of memory. If several plans cost the same, only one is returned: the plan with the fewest
// scales; if these are equal, with the most layers at the finest scale, then at the next scale, and
// so on; then with the smallest rate, the shortest segment, the longest memory. Returns nothing
// when no plan reaches `context`.
//
// `context` is compared with the minimum of exact_context: the position of a segment that sees the
// fewest past tokens must see at least `context`. So networks without recurrence never qualify.
//
// Lengths come from grids: 1, 2, 3, 4, 6, 8, 12, ... (powers of two and 1.5 times these) times a
// unit. The unit of segments is the tokens per state of the coarsest scale, or the rate for
// Compressive. The unit of memories is the rate with several scales and otherwise 1. The unit of
// compressed memories is 1. Segments are at most `context`, except that the first length of the
// grid is always used. The longest memory is the first length of its grid that is neither below
// `context` nor below the segment. A memory is at least as long as the segment, and a compressed
// memory at least as long as the number of compressed states that a step makes. Shorter memories
// would reach back complete segments through the few states that they hold, which is a context in
// theory only. The exception is memory 0 with several scales, where coarser scales have memories of
// their own.
//
// If `segments` has elements, they replace the grid of segments; a network is not combined with
// segments that do not fit the network.
//
// The networks must have their sizes; without vocab_size the softmax is not counted. Throws
// ConfigError for a network that cannot be built, and for a context outside 1 to
// kMaxPlannedContext.
std::vector<Plan> cheapest_plans(const std::vector<Network>& networks, std::int64_t context,
                                 const std::vector<std::int64_t>& segments = {});

}  // namespace ql::net
