// Finds the cheapest networks and lengths that reach a given context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/context.h"
#include "net/cost.h"
#include "net/network.h"

namespace ql::net {

struct Plan {
  Network network;
  Lengths lengths;
  ContextLength context;  // from exact_context()
  Cost cost;
};

// Longer contexts than this are not planned. They would need long segments, whose exact context
// lengths take long to compute.
constexpr std::int64_t kMaxPlannedContext = std::int64_t{1} << 20;
// divisions_of_layers considers no more scales than this.
constexpr std::size_t kMaxPlannedScales = 3;

// Returns `network` with `layers` layers distributed in all ways that `architecture` allows.
// Transformer-QL and Multi-scale get two or three scales and an output block, which may be empty;
// each division is combined with each of the rates. (With one scale they would be a Transformer-XL
// and a vanilla network.) Other architectures get one scale, and the Compressive Transformer gets
// each of the rates. These keys get their defaults if `architecture` refuses the value that
// `network` has: pool, compression_loss, encoding, the keys for several scales, same_length and
// reset_memory_at_documents. If `network` has scale_widths, networks of several scales have as many
// scales as widths.
std::vector<Network> divisions_of_layers(const Network& network, Architecture architecture,
                                         std::int64_t layers,
                                         const std::vector<std::int64_t>& rates);

// Returns the plans that have a context of at least `context` tokens and that no other plan
// dominates. A plan dominates another one if it has fewer operations per token and no more memory,
// or less memory and no more operations. The plans are sorted by operations per token, then by
// states of memory. If several plans cost the same, only one is returned. These criteria decide, in
// this order: fewer scales; more layers at the finest scale, then at the next scale, and so on; a
// smaller rate; a shorter segment; a longer memory; a shorter compressed memory. Returns nothing
// when no plan reaches `context`.
//
// `context` is compared with the minimum of exact_context(): every position of a segment must see
// at least `context` past tokens. So networks without a memory never qualify.
//
// Lengths come from grids: 1, 2, 3, 4, 6, 8, 12, ... (powers of two and 1.5 times these) times a
// unit. The unit of segments is the tokens per state of the coarsest scale, or the rate for
// Compressive. The unit of memories is the rate with several scales and otherwise 1. The unit of
// compressed memories is 1. Segments are at most `context`, except that the first length of the
// grid is always used. The grids of memories and of compressed memories end with their first length
// that is neither below `context` nor below the segment. A memory has at least as many states as
// the segment. A compressed memory has at least as many states as a step adds to it. Fewer states
// can depend on a complete earlier segment, too, but they would have to carry all its information.
// With several scales, memory 0 is also tried, because coarser scales then have memories of their
// own. Networks with same_length need a memory.
//
// If `segments` has elements, they replace the grid of segments. A network is not combined with
// segments that do not fit it.
//
// The networks must have d_model, n_head, d_head and d_inner. Without vocab_size the softmax is not
// counted. Throws ConfigError for a network that cannot be built, and for a context outside 1 to
// kMaxPlannedContext.
std::vector<Plan> cheapest_plans(const std::vector<Network>& networks, std::int64_t context,
                                 const std::vector<std::int64_t>& segments = {});

// Returns at most `limit` plans whose training takes at most `operations` per token
// (Cost::training_flops_per_token), those with the longest contexts first. Lengths come from the
// grids of cheapest_plans(), as far as a quick upper bound of the context is at most
// kMaxPlannedContext, and `segments` replaces a grid in the same way. For each network and segment
// only the longest memory that `operations` allow is considered; for Compressive, the longest
// compressed memory for each memory. With an attention_window it is the shortest one that reaches
// as far. A plan is left out if another of these has no shorter context, takes no more operations,
// and differs from it in one of the two. If several have the same context and operations, only one
// is returned, chosen by the criteria of cheapest_plans(). Throws ConfigError for a network that
// cannot be built.
std::vector<Plan> longest_plans(const std::vector<Network>& networks, double operations,
                                std::size_t limit, const std::vector<std::int64_t>& segments = {});

}  // namespace ql::net
