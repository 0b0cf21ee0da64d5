// Finds the geometries that reach a context of so many tokens, and the cheapest of them.
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

// The longest context to ask for: the exact length of a long segment takes its time.
constexpr std::int64_t kMaxPlannedContext = std::int64_t{1} << 20;
// The most scales that divisions_of_layers considers.
constexpr std::size_t kMaxPlannedScales = 3;

// `network` with its `layers` layers in every place where an architecture can have them: two or
// three scales and an output block, which may be empty, for Transformer-QL and Multi-scale (with
// one scale they are a Transformer-XL and a vanilla network), at every one of the rates; one scale
// for the others, at every rate for the Compressive Transformer. Of the other keys, those that an
// architecture cannot have are set back to their defaults: the pools and the loss of Compressive,
// absolute encoding, same_length and reset_memory_at_documents. Where scale_widths are
// given, networks of several scales have as many, of these widths.
std::vector<Network> divisions_of_layers(const Network& network, Architecture architecture,
                                         std::int64_t layers,
                                         const std::vector<std::int64_t>& rates);

// The networks and lengths whose context is at least `context` tokens, of which there is none that
// needs fewer operations per token and no more memory, or less memory and no more operations; the
// cheapest first, by operations per token, then by states of memory. Of plans that cost the same,
// one: that of the fewest scales, then the most layers at the finest scale, the next, and so on,
// the smallest rate, the shortest segment, the longest memory. Empty where no plan reaches so far.
//
// The minimum of exact_context is compared with `context`: the position of a segment that sees
// least must see so many tokens. So networks without recurrence never qualify.
//
// Lengths come from grids: 1, 2, 3, 4, 6, 8, 12, ..., powers of two and 1.5 times these, times the
// unit that the geometry asks for (segment: tokens of a coarsest state, Compressive: the rate;
// memory: the rate with several scales, else 1; compressed memory: 1). Segments are up to
// `context` (at least the first of the grid), memories up to the first of their grid that is at
// least `context`.
// A memory is at least as long as the segment, a compressed memory at least as long as what a step
// compresses: shorter ones would reach back whole segments through the few states they hold, which
// is context on paper only. The exception is memory 0 with several scales, where coarser scales
// have memories of their own.
//
// `segments`, if there are any, are tried instead of the grid's; a network that one does not fit
// passes it over.
//
// The networks know their sizes; without vocab_size the softmax is not counted. Throws ConfigError
// for a network that cannot be built, and for a context outside 1 to kMaxPlannedContext.
std::vector<Plan> cheapest_plans(const std::vector<Network>& networks, std::int64_t context,
                                 const std::vector<std::int64_t>& segments = {});

}  // namespace ql::net
