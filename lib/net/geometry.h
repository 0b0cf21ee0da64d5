// The lengths of every scale, from a network and its segment/memory lengths: the single source of
// truth for qlctx, the model and the tests (paper, section 2.3; share/doc/design.md, "Geometry").
#pragma once

#include <cstdint>
#include <vector>

#include "net/network.h"

namespace ql::net {

// The longest segment, memory and compressed memory, so that no product of lengths overflows.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 24;

// A query sees the keys before it at the distances 0, d, 2d, ..., (span-1) d of its head's dilation
// d.
struct AttentionReach {
  std::int64_t span = 0;                // 0: as many as there are
  std::vector<std::int64_t> dilations;  // one a head; empty: 1
};

// The states at one point of a step: the input of a layer, or the output of a scale or of the
// output block.
struct Stage {
  enum class Source {
    kTokens,      // the embedded tokens
    kLayer,       // a layer over the stage before
    kCompressed,  // the output of the scale before, pooled
    kAveraged,    // the outputs of all scales, up-sampled
  };
  Source source = Source::kTokens;
  std::size_t scale = 0;               // 0-based; the number of scales for the output block
  std::int64_t width = 0;              // d_model of the scale; 0 while the network has no sizes
  std::int64_t layer = -1;             // the layer that reads the states, counted from 0; -1: none
  std::int64_t segment = 0;            // n_s(i): states in a step
  std::int64_t memory = 0;             // n_m(i), or of an output those that something reads
  std::int64_t compressed_memory = 0;  // n_cm: states of a Compressive Transformer
  std::int64_t granularity = 1;        // g(i) = c^(i-1): tokens of a state
  std::int64_t shift = 0;              // h(i) = n_s / g(i): states that enter the memory in a step
  std::int64_t span = 0;               // keys that a query of the layer sees at most; 0: all
  // Keys and values that stand in the window for a state of the segment: with query_only_pooling
  // those of the states that became one, else its own.
  std::int64_t keys_per_state = 1;

  bool feeds_layer() const { return layer >= 0; }
  std::int64_t segment_keys() const { return segment * keys_per_state; }
  std::int64_t window() const { return compressed_memory + memory + segment_keys(); }
  bool operator==(const Stage& other) const;
};

// The network at some lengths: the stages in the order in which a step makes them. All that goes
// through a network layer by layer goes along them.
struct Geometry {
  Lengths lengths;
  std::int64_t rate = 2;
  Pool pool = Pool::kMax;
  bool recurrent = true;                // false: Multi-scale and vanilla keep no memory
  std::vector<Stage> stages;            // the tokens first, the output states last
  std::vector<std::size_t> outputs;     // of each scale, the stage that its last layer makes
  std::vector<std::int64_t> dilations;  // of all heads, each once, in increasing order

  // True when attention decides which old states are kept. It saw the ones kept before, so the
  // choice depends on all of the past, however far the kept ones reach.
  bool keeps_most_used() const { return lengths.compressed_memory > 0 && pool == Pool::kMostUsed; }
  bool accumulates() const { return outputs.back() + 1 < stages.size(); }
  // The input of a scale's last layer; one more than there are scales: of the output block's.
  const Stage& last_input(std::size_t scale) const {
    return stages[(scale < outputs.size() ? outputs[scale] : stages.size() - 1) - 1];
  }
  bool operator==(const Geometry& other) const;
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
