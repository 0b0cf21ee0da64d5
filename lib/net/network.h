// Declares the configuration of a network, without tensors; model.json and presets contain it.
// qlctx reads the configuration, and lib/nn builds the model from it. Key names follow the paper's
// appendix E where the appendix has a name.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace ql::net {

enum class Architecture { kTransformerQl, kTransformerXl, kCompressive, kMultiScale, kVanilla };
constexpr auto names_of(Architecture) {
  return std::array{"transformer-ql", "transformer-xl", "compressive", "multi-scale", "vanilla"};
}

// Pool names the compression between two scales (paper, section 2.3: f_c), and the compression of
// old memories in the Compressive Transformer (Rae et al., 2020). To add a pooling that works
// element by element, without parameters and without attention, add an enumerator to Pool, a row to
// kPools, and a case to pool_groups(). No other source changes.
enum class Pool { kMax, kMean, kConvolution, kDilatedConvolution, kMostUsed };

struct PoolRow {
  static constexpr unsigned kScales = 1;   // can compress between two scales
  static constexpr unsigned kLearned = 2;  // is a convolution with weights in every layer
  // A pooling with this mark can make a state from any of the states that leave the memory in a
  // step, not only from `rate` neighbours.
  static constexpr unsigned kSpread = 4;
  const char* name;
  unsigned marks;
  constexpr bool has(unsigned mark) const { return (marks & mark) != 0; }
};
inline constexpr std::array kPools{
    PoolRow{"max", PoolRow::kScales},
    PoolRow{"mean", PoolRow::kScales},
    PoolRow{"convolution", PoolRow::kLearned},
    PoolRow{"dilated-convolution", PoolRow::kLearned | PoolRow::kSpread},
    PoolRow{"most-used", PoolRow::kSpread},
};
constexpr auto names_of(Pool) { return names_in(kPools); }
constexpr const PoolRow& row_of(Pool pool) { return kPools[static_cast<std::size_t>(pool)]; }

// Pools each group of states into one state: [batch, groups, rate, width] -> [batch, groups,
// width]. The function is a template, because this file does not include LibTorch.
template <typename Tensor>
Tensor pool_groups(const Tensor& groups, Pool pool) {
  switch (pool) {
    case Pool::kMax:
      return groups.amax(2);
    case Pool::kMean:
      return groups.mean(2);
    default:
      throw std::logic_error("not a compression of scales");
  }
}

// A learned compression is trained with one of two losses. One loss compares the results of
// attention over the compressed states and over the old states. The other loss compares the old
// states with states decoded from the compressed ones.
enum class CompressionLoss { kAttentionReconstruction, kAutoEncoding };
constexpr auto names_of(CompressionLoss) {
  return std::array{"attention-reconstruction", "auto-encoding"};
}

// The encoding gives attention the positions of queries and keys. kEncodings has a row for each
// encoding.
enum class Encoding {
  kTransformerXl,  // sinusoids of the distance, projected, and biases u and v (Dai et al., 2019)
  kShaw,           // a learned vector for each distance up to clamp_len (Shaw et al., 2018)
  kAbsolute        // sinusoids of the index in the segment, added to the embedding (Vaswani et al.)
};

// The kind of attention decides how a query weighs the values.
enum class Attention {
  kSoftmax,
  kLinear  // by products of feature maps, in time linear in the window (Katharopoulos et al., 2020)
};
constexpr auto names_of(Attention) { return std::array{"softmax", "linear"}; }

// Holds the lengths that may differ between training and evaluation. A struct keeps them
// apart from other integer arguments.
struct Lengths {
  std::int64_t segment = 0;            // n_s, tokens
  std::int64_t memory = 0;             // n_m, states of scale 1
  std::int64_t compressed_memory = 0;  // n_cm, compressed states (Compressive Transformer only)

  bool operator==(const Lengths& other) const {
    return segment == other.segment && memory == other.memory &&
           compressed_memory == other.compressed_memory;
  }
};

// Holds values to combine. An empty list stands for the length that a network has of its own.
struct LengthLists {
  std::vector<std::int64_t> segments, memories, compressed_memories;
};

// Returns all combinations; the compressed memory changes fastest.
std::vector<Lengths> all_lengths(const LengthLists& lists, const Lengths& own);

struct Network {
  Architecture architecture = Architecture::kTransformerQl;
  std::int64_t vocab_size = 0;  // 0 in a preset: taken from the data
  std::int64_t d_model = 0;
  std::int64_t n_head = 0;
  std::int64_t d_head = 0;
  std::int64_t d_inner = 0;
  std::vector<std::int64_t> scales;  // layers of each scale; one scale in XL, vanilla, Compressive
  // Holds d_model of every scale, the finest first (Donahue et al., 2019; the paper, section 3.2);
  // d_inner changes in proportion. If scale_widths is empty, all scales have d_model.
  std::vector<std::int64_t> scale_widths;
  std::int64_t output_layers = 0;  // of the output block; 0 for XL, vanilla, Compressive
  std::int64_t rate = 2;           // compression rate c
  Pool pool = Pool::kMax;
  // If true, the first layer of a coarser scale uses pooled states for the queries only; keys and
  // values of the segment come from the states before pooling (Dai et al., 2020; the paper,
  // section 3.2).
  bool query_only_pooling = false;
  // If true, every scale's states go through a learned map before the scales are averaged (lines 17
  // and 24 of the paper's figure 2e). The maps are initialized as the identity, so training begins
  // with the paper's average.
  bool learned_join = false;
  CompressionLoss compression_loss = CompressionLoss::kAttentionReconstruction;
  bool pre_lnorm = true;
  bool untie_r = false;         // every layer has its own biases u and v
  std::int64_t clamp_len = -1;  // longer distances count as this one; -1: no limit
  Encoding encoding = Encoding::kTransformerXl;
  Attention attention = Attention::kSoftmax;
  bool same_length = false;           // every query sees as many keys as there are memory states
  std::int64_t attention_window = 0;  // largest number of keys that a query sees; 0: no limit
  std::vector<std::int64_t> attention_dilation;  // one for each head; empty: all 1
  Lengths lengths;                               // n_s, n_m, n_cm of training
  // If true, a step resets the memory's states that belong to another document than the segment's
  // first token (nn/memory_documents.h).
  bool reset_memory_at_documents = false;
  double dropout = 0.0;
  double dropatt = 0.0;
  double droppath = 0.0;
  double init_std = 0.02;
  double proj_init_std = 0.01;  // of projections between embeddings and d_model
  // The following keys are for adaptive input and softmax (net/cost.h). Without cutoffs the softmax
  // is a plain one.
  std::vector<std::int64_t> cutoffs;  // first id of the second cluster, of the third, ...
  bool cutoffs_from_data = false;     // in a preset: chosen later for the training data
  std::int64_t div_val = 1;           // each next cluster's embeddings are narrower by this factor
  std::int64_t d_embed = 0;           // embedding width of the first cluster; 0: d_model
  bool proj_same_dim = true;          // also project embeddings of width d_model when div_val > 1
  std::vector<bool>
      tie_projs;  // a cluster's two projections are shared; empty: all except the first

  // Returns tie_projs, with its default written out.
  std::vector<bool> resolved_tie_projs() const;
  std::int64_t embedding_width() const { return d_embed > 0 ? d_embed : d_model; }

  // Returns d_model of a scale (0-based). The index after the last scale stands for the output
  // block.
  std::int64_t width_of(std::size_t scale) const;
  // Returns true when a learned map changes the states of a scale before all scales are averaged.
  bool maps_into_join(std::size_t scale) const;
  // Returns the network with the d_model and d_inner of a scale's layers.
  Network of_scale(std::size_t scale) const;

  // Returns the number of layers of all scales and of the output block.
  std::int64_t layers() const;

  // learns_compression() returns true when every layer has a convolution that compresses the
  // layer's old memories. learns_decoder() returns true when every layer also has a decoder of the
  // compressed memories.
  bool learns_compression() const;
  bool learns_decoder() const;

  // Throws ConfigError with the key and a remedy when a value is outside its range or does not fit
  // the others. `where` is the file from which the values came. Lengths are checked by
  // make_geometry() instead.
  void check(const std::string& where = "") const;
  // Checks only the keys of kLayerKeys, and whether the architecture allows them.
  void check_layers(const std::string& where = "") const;
};

// Describes the parameters, costs and rules of an encoding. nn/encoding.cpp computes its tensors.
struct EncodingRow {
  static constexpr unsigned kBiases = 1;     // has the biases u and v of Transformer-XL
  static constexpr unsigned kVectors = 2;    // a score adds query times the distance's vector
  static constexpr unsigned kClamped = 4;    // needs clamp_len
  static constexpr unsigned kPlaces = 8;     // encodes indexes in a segment, not distances
  static constexpr unsigned kFeatures = 16;  // works with linear attention
  const char* name;
  unsigned marks;
  // Every layer has a weight named "dec_attn." + `weight` with this shape, unless `shape` is null.
  const char* weight = "";
  std::vector<std::int64_t> (*shape)(const Network&) = nullptr;
  constexpr bool has(unsigned mark) const { return (marks & mark) != 0; }
};
inline constexpr std::array kEncodings{
    EncodingRow{"transformer-xl",
                EncodingRow::kBiases | EncodingRow::kVectors | EncodingRow::kFeatures,
                "r_net.weight",
                [](const Network& network) {
                  return std::vector{network.n_head * network.d_head, network.d_model};
                }},
    EncodingRow{"shaw", EncodingRow::kVectors | EncodingRow::kClamped, "r_emb",
                [](const Network& network) {
                  return std::vector{network.clamp_len + 1, network.n_head, network.d_head};
                }},
    EncodingRow{"absolute", EncodingRow::kPlaces | EncodingRow::kFeatures},
};
constexpr auto names_of(Encoding) { return names_in(kEncodings); }
constexpr const EncodingRow& row_of(Encoding encoding) {
  return kEncodings[static_cast<std::size_t>(encoding)];
}

// Returns false for Multi-scale and vanilla.
bool keeps_memory(Architecture architecture);
// Returns true for Transformer-QL and Multi-scale.
bool has_scales(Architecture architecture);

// These bounds keep every product of sizes within 64 bits.
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxRate = 4096;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 18;  // d_model, d_inner, n_head * d_head
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 31;
constexpr std::int64_t kMaxLength = std::int64_t{1} << 24;  // segment, memory, compressed memory

// The following tables list the keys of the object "network" in the order of model.json.

inline constexpr Range kDeviation(0, std::numeric_limits<double>::max(),
                                  "a finite number of at least 0");

inline constexpr Range kDilations(1, kMaxLength);

// check_layers() checks these keys, and the attention_dilation.
inline constexpr auto kLayerKeys = [](auto& network, const auto& row) {
  row("scales", network.scales, {1, kMaxLayers}, kRequired);
  row("output_layers", network.output_layers, {0, kMaxLayers});
  row("rate", network.rate, {1, kMaxRate});
};

constexpr auto keys_of(const Network&) {
  return [](auto& network, const auto& row) {
    row("architecture", network.architecture, {}, kRequired);
    row("vocab_size", network.vocab_size, {0, kMaxVocabulary});
    row("d_model", network.d_model, {1, kMaxWidth}, kRequired);
    row("n_head", network.n_head, {1, kMaxWidth}, kRequired);
    row("d_head", network.d_head, {1, kMaxWidth}, kRequired);
    row("d_inner", network.d_inner, {1, kMaxWidth}, kRequired);
    kLayerKeys(network, row);
    row("pool", network.pool);
    row("pre_lnorm", network.pre_lnorm);
    row("untie_r", network.untie_r);
    row("clamp_len", network.clamp_len,
        {-1, kMaxWidth, "1 to 262144, or -1, which clamps no distance"});
    row("segment", network.lengths.segment, {}, kRequired);
    row("memory", network.lengths.memory);
    row("compressed_memory", network.lengths.compressed_memory);
    row("compression_loss", network.compression_loss);
    row("reset_memory_at_documents", network.reset_memory_at_documents);
    row("dropout", network.dropout, kBelowOne, kMayChange);
    row("dropatt", network.dropatt, kBelowOne, kMayChange);
    row("droppath", network.droppath, kBelowOne, kMayChange);
    row("init_std", network.init_std, kDeviation);
    row("proj_init_std", network.proj_init_std, kDeviation);
    row("cutoffs", network.cutoffs);
    row("div_val", network.div_val, {1, kMaxWidth});
    row("d_embed", network.d_embed, {0, kMaxWidth});
    row("proj_same_dim", network.proj_same_dim);
    row("tie_projs", network.tie_projs);
    row("encoding", network.encoding);
    row("attention", network.attention);
    row("same_length", network.same_length);
    row("attention_window", network.attention_window, {0, kMaxLength});
    row("attention_dilation", network.attention_dilation, kDilations);
    row("query_only_pooling", network.query_only_pooling);
    row("learned_join", network.learned_join);
    row("scale_widths", network.scale_widths, {1, kMaxWidth});
  };
}

// A trained network may attend in another way: these changes leave its weights as they are.
struct AttentionChange {
  std::optional<std::int64_t> clamp_len;
  bool same_length = false;
};
// Throws ConfigError if the network cannot have the change.
Network with_change(Network network, const AttentionChange& change);

// Adds the conflicts that Network::check() would throw.
void find_conflicts(const Network& network, const std::string& where, Conflicts& conflicts);

// Returns the short name that qlctx uses: "ql", "xl", "compressive", "multiscale" or "vanilla".
std::string to_short_text(Architecture architecture);

// Reads the "network" object of model.json or of a preset, and checks the network with check() and
// make_geometry(). Refuses an unknown key, and suggests the nearest known key. Missing keys take
// the defaults of struct Network, but architecture, d_model, n_head, d_head, d_inner, scales and
// segment are required.
Network network_from_json(const JsonObject& json);
Json network_to_json(const Network& network);

using ql::to_text;

}  // namespace ql::net

namespace ql {

// Accepts full names, such as "transformer-ql", and short names, such as "ql".
template <>
std::optional<net::Architecture> find_named(std::string_view name);

}  // namespace ql
