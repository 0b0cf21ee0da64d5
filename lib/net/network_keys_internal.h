// The keys of the object "network", in the order of the file.
#pragma once

#include <limits>
#include <string>

#include "base/keys.h"
#include "net/geometry.h"
#include "net/network.h"

namespace ql::net {

inline constexpr Range kDeviation(0, std::numeric_limits<double>::max(),
                                  "a finite number of at least 0");

// Those that context lengths depend on.
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
    row("attention_dilation", network.attention_dilation, {1, kMaxLength});
    row("query_only_pooling", network.query_only_pooling);
    row("learned_join", network.learned_join);
    row("scale_widths", network.scale_widths, {1, kMaxWidth});
  };
}

// Adds what Network::check() throws.
void find_conflicts(const Network& network, const std::string& where, Conflicts& conflicts);

// Network::check(), and whether the lengths of training fit.
void check_with_lengths(const Network& network, const std::string& where);

// network_from_json(), but what check_with_lengths() would throw is added to `conflicts`.
Network network_from_json(const JsonObject& json, Conflicts& conflicts);

}  // namespace ql::net
