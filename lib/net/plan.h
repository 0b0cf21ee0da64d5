// Finds networks and lengths that reach a given context, and the cheapest of them.
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

// No longer context is planned, because computing the exact length of a long segment takes long.
constexpr std::int64_t kMaxPlannedContext = std::int64_t{1} << 20;
// divisions_of_layers considers no more scales than this.
constexpr std::size_t kMaxPlannedScales = 3;

// Returns `network` with its `layers` layers distributed in all ways that an architecture allows:
// over two or three scales and an output block, which may be empty, for Transformer-QL and
// Multi-scale (with one scale they are a Transformer-XL and a vanilla network), with every one of
// the rates; in one scale for the others, with every rate for the Compressive Transformer. Keys
// that an architecture cannot have get their defaults: the pools and the loss of Compressive,
// absolute encoding, same_length and reset_memory_at_documents. If scale_widths are given, networks
// of several scales have that many scales, of these widths.
std::vector<Network> divisions_of_layers(const Network& network, Architecture architecture,
                                         std::int64_t layers,
                                         const std::vector<std::int64_t>& rates);

// Returns the networks and lengths whose context is at least `context` tokens, and which no other
// undercuts: none of them has both fewer operations per token and no more memory, or less memory
// and no more operations. The cheapest come first, by operations per token, then by states of
// memory. If several plans cost the same, one of them is returned: the one with the fewest scales,
// then the most layers at the finest scale, at the next, and so on, the smallest rate, the shortest
// segment, the longest memory. Returns nothing when no plan reaches that far.
//
// `context` is compared with the minimum of exact_context: the position of a segment that sees
// least must see that many tokens. So networks without recurrence never qualify.
//
// Lengths come from grids: 1, 2, 3, 4, 6, 8, 12, ... (powers of two and 1.5 times these) times a
// unit. The unit of segments is the tokens of a coarsest state, or the rate for Compressive; that
// of memories is the rate with several scales and otherwise 1; that of compressed memories is 1.
// Segments are up to `context` (at least the first of the grid), memories up to the first of their
// grid that is at least `context`.
// A memory is at least as long as the segment, and a compressed memory at least as long as the
// states that a step compresses: shorter ones would reach back complete segments through the few
// states that they hold, which is context on paper only. The exception is memory 0 with several
// scales, where coarser scales have memories of their own.
//
// `segments`, if there are any, replace the grid of segments; a network is not combined with a
// segment that does not fit it.
//
// The networks must have their sizes; without vocab_size the softmax is not counted. Throws
// ConfigError for a network that cannot be built, and for a context outside 1 to
// kMaxPlannedContext.
std::vector<Plan> cheapest_plans(const std::vector<Network>& networks, std::int64_t context,
                                 const std::vector<std::int64_t>& segments = {});

}  // namespace ql::net
