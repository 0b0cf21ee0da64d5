// The lengths of every scale, from a network and its segment/memory lengths: the single source of
// truth for qlctx, the model and the tests (paper, section 2.3; share/doc/design.md, "Geometry").
#pragma once

#include <cstdint>
#include <vector>

#include "net/network.h"

namespace ql::net {

// The longest segment, memory and compressed memory, so that no product of lengths overflows.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 24;

// Which of the keys before it a query sees: those at the distances 0, d, 2d, ..., (span-1) d of its
// head's dilation d.
struct AttentionReach {
  std::int64_t span = 0;                // 0: as many as there are
  std::vector<std::int64_t> dilations;  // one a head; empty: 1

  bool limited() const { return span > 0; }
};

struct ScaleGeometry {
  std::int64_t layers = 0;
  std::int64_t segment = 0;      // n_s(i): states of this scale in a segment
  std::int64_t memory = 0;       // n_m(i): states in the memory of each layer's input
  std::int64_t granularity = 1;  // g(i) = c^(i-1): tokens per state
  std::int64_t shift = 0;        // h(i) = n_s / g(i): states that enter the memory each step
  // States of the last layer's output that are kept for the next step: all of `memory` where they
  // are compressed, one where accumulation reads the newest of them, else none.
  std::int64_t output_memory = 0;
  AttentionReach reach;
  std::int64_t window() const { return segment + memory; }
};

struct Geometry {
  Lengths lengths;
  std::int64_t rate = 2;
  std::vector<ScaleGeometry> scales;   // at least one
  ScaleGeometry output;                // layers == 0: no output block and no accumulation
  bool recurrent = true;               // false: Multi-scale and vanilla keep no memory
  std::int64_t compressed_memory = 0;  // n_cm of every layer; 0 unless Compressive
  // States before the memory back to the oldest that the compressed memory can be made from:
  // n_cm * c, or more where one is made from all over its step and not all of a step are kept.
  std::int64_t compressed_reach = 0;
  Pool pool = Pool::kMax;

  // Which old states are kept depends on the attention of their step, which saw the ones kept
  // before: on all of the past, however far the kept ones reach.
  bool keeps_most_used() const { return compressed_memory > 0 && pool == Pool::kMostUsed; }
  bool accumulates() const { return scales.size() > 1 || output.layers > 0; }
};

// Transformer-QL: n_s(i+1) = min(n_w / c, n_s(i)), n_m(i) = n_w - n_s(i), g(i) = c^(i-1),
// h(i) = n_s / g(i); n_w must divide by c and n_s by g(S).
// Multi-scale: n_s(i) = n_s / g(i), no memory. Transformer-XL: one scale. Vanilla: one scale, no
// memory. Compressive: one scale and n_cm compressed states per layer, n_s divides by c.
// same_length needs a memory.
// Needs Network::check_layers only. Throws ConfigError that names the rule and the nearest valid
// lengths.
Geometry make_geometry(const Network& network, const Lengths& lengths);

// The valid lengths nearest to `lengths`: every length that breaks a rule replaced by the nearest
// lower valid one (first element) and by the nearest higher one (second element), where there are
// such. `lengths` itself alone when it is valid; empty when no lengths fit the network.
std::vector<Lengths> nearest_valid_lengths(const Network& network, const Lengths& lengths);

}  // namespace ql::net
