#include "net/public_config_internal.h"

#include <fmt/format.h>

#include "base/error.h"
#include "net/network_keys_internal.h"

namespace ql::net {
namespace {

constexpr std::int64_t kFormerSegment = 128;

void require(const JsonObject& json, const char* key, const Json& value, const char* can) {
  if (json.has(key) && json.at(key) != value) {
    throw ConfigError(fmt::format("{}: {}", json.where(), key),
                      fmt::format("is {}; this network has {}", json.at(key).dump(), can));
  }
}

}  // namespace

bool is_public_config(const Json& json) {
  return json.is_object() && json.contains("model_type") && json["model_type"] == "transfo-xl";
}

Network network_from_public_config(const JsonObject& json) {
  require(json, "attn_type", 0, "relative attention only, 0");
  require(json, "layer_norm_epsilon", 1e-5, "1e-5");
  require(json, "tie_word_embeddings", true, "tied embeddings");
  require(json, "tie_weight", true, "tied embeddings");

  Network network;
  network.architecture = Architecture::kTransformerXl;
  network.scales = {0};
  network.pre_lnorm = false;
  network.untie_r = true;
  network.lengths.segment = kFormerSegment;
  const auto read = key_reader(json);
  read("vocab_size", network.vocab_size, {}, kRequired);
  read("d_model", network.d_model, {}, kRequired);
  read("n_head", network.n_head, {}, kRequired);
  read("d_head", network.d_head, {}, kRequired);
  read("d_inner", network.d_inner, {}, kRequired);
  read("n_layer", network.scales.front(), {}, kRequired);
  read("pre_lnorm", network.pre_lnorm);
  read("untie_r", network.untie_r);
  read("clamp_len", network.clamp_len);
  network.clamp_len = network.clamp_len > 0 ? network.clamp_len : -1;
  read("same_length", network.same_length);
  read("tgt_len", network.lengths.segment);
  read("mem_len", network.lengths.memory);
  read("dropout", network.dropout);
  read("dropatt", network.dropatt);
  read("init_std", network.init_std);
  read("proj_init_std", network.proj_init_std);
  read("cutoffs", network.cutoffs);  // the library divides by them whatever `adaptive` says
  read("div_val", network.div_val);
  read("d_embed", network.d_embed);
  bool share = true;
  read("proj_share_all_but_first", share);
  network.tie_projs.assign(network.cutoffs.size() + 1, share);
  network.tie_projs.front() = false;
  read("tie_projs", network.tie_projs);
  check_with_lengths(network, json.where());
  return network;
}

}  // namespace ql::net
