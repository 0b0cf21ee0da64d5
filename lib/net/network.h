// A network of the Transformer-QL family as configured: what model.json and the presets hold.
// No tensors here: qlctx reads it, and the model (lib/nn) is built from it.
// Key names follow the paper's appendix E where it has one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/names.h"

namespace ql::net {

enum class Architecture { kTransformerQl, kTransformerXl, kCompressive, kMultiScale, kVanilla };
constexpr auto names_of(Architecture) {
  return std::array{"transformer-ql", "transformer-xl", "compressive", "multi-scale", "vanilla"};
}

// The compression between two scales (paper, section 2.3: f_c; max or mean), and the Compressive
// Transformer's compression of old memories (any; Rae et al., 2020).
enum class Pool { kMax, kMean, kConvolution, kDilatedConvolution, kMostUsed };
constexpr auto names_of(Pool) {
  return std::array{"max", "mean", "convolution", "dilated-convolution", "most-used"};
}
// Scales are compressed number by number, without parameters or a look at the attention.
constexpr bool compresses_scales(Pool pool) { return pool == Pool::kMax || pool == Pool::kMean; }
// A compressed state is made of states from all over the step that left the memory, not of `rate`
// neighbours.
constexpr bool spreads(Pool pool) {
  return pool == Pool::kDilatedConvolution || pool == Pool::kMostUsed;
}

// A learned compression is taught by one of two aims: attention over the compressed states gives
// what it gave over the old ones, or the old ones can be decoded from them.
enum class CompressionLoss { kAttentionReconstruction, kAutoEncoding };
constexpr auto names_of(CompressionLoss) {
  return std::array{"attention-reconstruction", "auto-encoding"};
}

// The encoding tells a query where a key stands.
enum class Encoding {
  kTransformerXl,  // sinusoids of the distance, projected, and biases u and v (Dai et al., 2019)
  kShaw,           // a learned vector for each distance up to clamp_len (Shaw et al., 2018)
  kAbsolute        // sinusoids of the place in the segment, added to the embedding (Vaswani et al.)
};
constexpr auto names_of(Encoding) { return std::array{"transformer-xl", "shaw", "absolute"}; }

// A query weighs the values by one of these.
enum class Attention {
  kSoftmax,
  kLinear  // by products of feature maps, in time linear in the window (Katharopoulos et al., 2020)
};
constexpr auto names_of(Attention) { return std::array{"softmax", "linear"}; }

// The lengths that may differ between training and evaluation. A struct, so that two integers can
// never be swapped.
struct Lengths {
  std::int64_t segment = 0;            // n_s, tokens
  std::int64_t memory = 0;             // n_m, states of scale 1
  std::int64_t compressed_memory = 0;  // n_cm, compressed states (Compressive Transformer only)

  bool operator==(const Lengths& other) const {
    return segment == other.segment && memory == other.memory &&
           compressed_memory == other.compressed_memory;
  }
};

struct Network {
  Architecture architecture = Architecture::kTransformerQl;
  std::int64_t vocab_size = 0;  // 0 in a preset: taken from the data
  std::int64_t d_model = 0;
  std::int64_t n_head = 0;
  std::int64_t d_head = 0;
  std::int64_t d_inner = 0;
  std::vector<std::int64_t> scales;  // layers of scale 1, 2, ...; one entry for XL and vanilla
  // d_model of every scale, the finest first (Donahue et al., 2019; the paper, section 4.2);
  // d_inner grows in proportion. Empty: all scales have d_model.
  std::vector<std::int64_t> scale_widths;
  std::int64_t output_layers = 0;  // after accumulation; 0 for XL, vanilla, Compressive
  std::int64_t rate = 2;           // compression rate c
  Pool pool = Pool::kMax;
  // The first layer of a coarser scale: pooled states make the queries alone, keys and values come
  // from the states that were pooled (Dai et al., 2020, section 2.1; the paper, section 4.2).
  bool query_only_pooling = false;
  // Every scale's states go through a learned map before the scales are averaged (line 16 of the
  // paper's algorithm 1); the maps begin as the identity, so the join begins as the paper's
  // average.
  bool learned_join = false;
  CompressionLoss compression_loss = CompressionLoss::kAttentionReconstruction;
  bool pre_lnorm = true;
  bool untie_r = false;         // every layer its own biases u and v
  std::int64_t clamp_len = -1;  // distances beyond it count as it; -1: all are told apart
  Encoding encoding = Encoding::kTransformerXl;
  Attention attention = Attention::kSoftmax;
  bool same_length = false;           // every query sees as many keys as the memory has states
  std::int64_t attention_window = 0;  // keys that a query sees at most; 0: all before it
  std::vector<std::int64_t> attention_dilation;  // of each head's window; empty: 1
  Lengths lengths;                               // n_s, n_m, n_cm of training
  // Memories forget what belongs to another document than the segment's first token
  // (nn/document_reset_internal.h).
  bool reset_memory_at_documents = false;
  double dropout = 0.0;
  double dropatt = 0.0;
  double droppath = 0.0;
  double init_std = 0.02;
  double proj_init_std = 0.01;  // of projections between embeddings and d_model
  // Adaptive input and softmax (net/clusters.h). Without cutoffs the softmax is a plain one.
  std::vector<std::int64_t> cutoffs;  // first ids of the second cluster, the third, ...
  bool cutoffs_from_data = false;     // of a preset: to be chosen for the training data
  std::int64_t div_val = 1;           // each cluster's embeddings are narrower by this factor
  std::int64_t d_embed = 0;           // of the first cluster; 0: d_model
  bool proj_same_dim = true;          // project embeddings of d_model, too, when div_val > 1
  std::vector<bool> tie_projs;  // a cluster's two projections are one; empty: all but the first

  // tie_projs, with its default written out.
  std::vector<bool> resolved_tie_projs() const;
  std::int64_t embedding_width() const { return d_embed > 0 ? d_embed : d_model; }

  // d_model of a scale, counted from 0, or of the output block behind the last one.
  std::int64_t width_of(std::size_t scale) const;
  // Tells whether a map stands between the states of a scale and the join of all scales.
  bool maps_into_join(std::size_t scale) const;
  // The network with d_model and d_inner as its layers there have them.
  Network of_scale(std::size_t scale) const;

  // Layers with parameters: all scales and the output block.
  std::int64_t layers() const;

  // True when every layer has a convolution that compresses its old memories; the second, when it
  // has a decoder for them as well.
  bool learns_compression() const;
  bool learns_decoder() const;

  // Throws ConfigError naming the key and the cure when a value is outside its range or does not
  // fit the others. `where` is the file the values came from. Lengths are checked by make_geometry.
  void check(const std::string& where = "") const;
  // The part of check() that context lengths depend on: layers, scales, rate.
  void check_layers(const std::string& where = "") const;
};

// False for Multi-scale and vanilla.
bool keeps_memory(Architecture architecture);
// True for Transformer-QL and Multi-scale.
bool has_scales(Architecture architecture);

// Bounds that keep every product of sizes inside 64 bits.
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxRate = 4096;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 18;  // d_model, d_inner, n_head * d_head
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 31;

// qlctx's names: "ql", "xl", "compressive", "multiscale", "vanilla".
std::string to_short_text(Architecture architecture);

// The "network" object of model.json and presets, checked with check() and make_geometry.
// Unknown keys are refused with the nearest one. Keys left out take the defaults above;
// architecture, d_model, n_head, d_head, d_inner, scales and segment have none.
Network network_from_json(const JsonObject& json);
Json network_to_json(const Network& network);
// The keys of that object, and those of which a resumed training may have other values.
std::vector<std::string> network_keys();
std::vector<std::string> network_keys_that_may_change();

using ql::to_text;

}  // namespace ql::net

namespace ql {

// Takes the short names as well.
template <>
std::optional<net::Architecture> find_named(std::string_view name);

}  // namespace ql
