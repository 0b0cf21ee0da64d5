// Computes the geometry of a network: the lengths of every scale, and the states from which each
// state is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/network.h"

namespace ql::net {

// The lengths of every scale follow from a network and its segment and memory lengths. qlctx, the
// model and the tests use them (paper, section 2.3; share/doc/design.md, "Geometry").

// Describes the attention window: a query sees the keys at the distances 0, d, 2d, ..., (span-1) d
// before its own position, where d is the dilation of the query's head.
struct AttentionWindow {
  std::int64_t span = 0;                // largest number of keys that a query sees; 0: no limit
  std::vector<std::int64_t> dilations;  // one for each head; empty: all are 1
};

// Describes a stage, which has the states at one point of a step: the input of a layer, or the
// output of a scale or of the output block.
struct Stage {
  enum class Source {
    kTokens,      // the embedded tokens
    kLayer,       // the output of a layer, whose input is the previous stage
    kCompressed,  // the pooled output of the previous scale
    kAveraged,    // the average of the up-sampled outputs of all scales
  };
  std::size_t index = 0;  // in Geometry::stages
  Source source = Source::kTokens;
  std::size_t scale = 0;     // 0-based; for the output block: the number of scales
  std::int64_t width = 0;    // d_model of the scale; 0 if the network has no d_model
  std::int64_t layer = -1;   // index of the layer that reads the states; -1: none
  std::int64_t segment = 0;  // n_s(i): states in a step
  // This is n_m(i), the states in the memory. A scale's output keeps a memory for the compression
  // to the next scale. The last output keeps at most one state, for the average of scales.
  std::int64_t memory = 0;
  std::int64_t compressed_memory = 0;  // n_cm: compressed states (Compressive only)
  std::int64_t stride = 1;             // g(i) = c^(i-1): tokens per state
  std::int64_t new_states = 0;         // h(i) = n_s / g(i): states that enter the memory in a step
  std::int64_t span = 0;               // largest number of keys that a query sees; 0: no limit
  // A layer makes this number of keys for each state of the segment: 1, or `rate` where
  // query_only_pooling applies. There the `rate` states before pooling are the keys.
  std::int64_t keys_per_state = 1;

  bool feeds_layer() const { return layer >= 0; }
  std::int64_t segment_keys() const { return segment * keys_per_state; }
  std::int64_t window() const { return compressed_memory + memory + segment_keys(); }
};

// Describes the network for given lengths. The stages are in the order in which a step computes
// them; all code that walks through a network layer by layer follows this order.
struct Geometry {
  Lengths lengths;
  std::int64_t rate = 2;
  Pool pool = Pool::kMax;
  bool recurrent = true;                // false for Multi-scale and vanilla: no memory
  std::vector<Stage> stages;            // the tokens first, the output states last
  std::vector<std::size_t> outputs;     // for each scale, the index of its last layer's output
  std::vector<std::int64_t> dilations;  // each dilation once, in increasing order

  // Returns true when attention decides which old states are kept. This attention depends on the
  // states that were kept before. So the choice depends on the complete past, even if the kept
  // states themselves are recent.
  bool keeps_most_used() const { return lengths.compressed_memory > 0 && pool == Pool::kMostUsed; }
  // Returns the input of the last layer of a scale. The index after the last scale stands for an
  // output block with layers.
  const Stage& last_input(std::size_t scale) const {
    return stages[(scale < outputs.size() ? outputs[scale] : stages.size() - 1) - 1];
  }
};

// These are the rules for lengths, with S scales and the window n_w = n_s + n_m of scale 1. A state
// of scale i stands for g(i) = c^(i-1) tokens, and a step makes h(i) = n_s / g(i) new ones.
//   Transformer-QL: n_s(i+1) = min(n_w / c, n_s(i)), n_m(i) = n_w - n_s(i); n_s must be divisible
//   by g(S), and n_w by c if there are several scales.
//   Multi-scale: n_s(i) = h(i), no memory; n_s must be divisible by g(S).
//   Transformer-XL: one scale. Vanilla: one scale, no memory.
//   Compressive: one scale and n_cm compressed states per layer; n_s must be divisible by c.
//   same_length needs a memory.
// Throws the ConfigError of check_layers(). For wrong lengths, throws a ConfigError that names the
// broken rule and the nearest valid lengths.
Geometry make_geometry(const Network& network, const Lengths& lengths);
// Adds a conflict if the lengths do not fit the network. Adds nothing if check_layers() refuses the
// network.
void find_conflicts(const Network& network, const Lengths& lengths, const std::string& where,
                    Conflicts& conflicts);

// Returns the valid lengths nearest to `lengths`, as two elements. The first element replaces every
// length that breaks a rule by the next lower valid length, the second element by the next higher
// one. If a length has a valid value on one side only, both elements have this value. If the two
// elements are equal, one is returned; so for valid `lengths` the result is `lengths` alone.
// Returns nothing when no lengths fit the network.
std::vector<Lengths> nearest_valid_lengths(const Network& network, const Lengths& lengths);

// The following functions find, without tensors, the states from which a state is computed, the
// step that computed it, and the tokens that it covers.

// Describes `count` states of Geometry::stages[stage]. Their indexes are `first`, `first` + `step`,
// ... Index 0 is the first state of the segment, -1 the newest state of the memory. States that
// were compressed into a compressed memory have indexes as if they had stayed in the memory.
struct StateRun {
  std::size_t stage = 0;
  std::int64_t first = 0, count = 1, step = 1;
};

// Returns the state at `index` in the window of a layer's input. For an index in the compressed
// memory, which is older than the memory, returns the states from which the compressed state there
// can be made.
StateRun states_at(const Geometry& geometry, std::size_t stage, std::int64_t index);

// Visits all states from which state `index` in the segment of a stage is computed: each call of
// visit() gets one or several states. For stage 0, the tokens, nothing is visited. If the stage is
// the output of a layer, the oldest key of each dilation comes before its other keys; with
// `oldest_key` these are left out. A key of a compressed memory is visited as the states from which
// it was made. With Pool::kMostUsed these are all states that attention may have chosen.
void visit_inputs(const Geometry& geometry, std::size_t stage, std::int64_t index, bool oldest_key,
                  const std::function<void(const StateRun&)>& visit);

// Names a state by the step that computed it and by its index (0 or more) in the segment of that
// step. The first `new_states` states of a segment enter the memory, so every state of the memory
// is one of these in an earlier segment.
struct Origin {
  std::int64_t steps_back = 0, index = 0;
};
Origin origin_of(const Stage& stage, std::int64_t index);

// Returns the position of the first token that a state covers, relative to the first token of the
// current segment. The state's last token is stride - 1 later.
std::int64_t first_token(const Stage& stage, const Origin& state);

}  // namespace ql::net
