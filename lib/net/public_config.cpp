#include "net/public_config.h"

#include <fmt/format.h>

#include "base/error.h"
#include "net/geometry.h"

namespace ql::net {
namespace {

constexpr std::int64_t kFormerSegment = 128;
constexpr double kLayerNormEpsilon = 1e-5;

void require(bool good, const JsonObject& json, const char* key, const std::string& can) {
  if (!good) {
    throw ConfigError(fmt::format("{}: {}", json.where(), key),
                      fmt::format("is {}; this network has {}", json.at(key).dump(), can));
  }
}

}  // namespace

bool is_public_config(const Json& json) {
  return json.is_object() && json.contains("model_type") && json["model_type"] == "transfo-xl";
}

Network network_from_public_config(const JsonObject& json) {
  const auto integer = [&](const char* key, std::int64_t fallback) {
    return json.has(key) ? json.integer(key) : fallback;
  };
  const auto real = [&](const char* key, double fallback) {
    return json.has(key) ? json.real(key) : fallback;
  };
  const auto boolean = [&](const char* key, bool fallback) {
    return json.has(key) ? json.boolean(key) : fallback;
  };
  require(integer("attn_type", 0) == 0, json, "attn_type", "relative attention only, 0");
  require(real("layer_norm_epsilon", kLayerNormEpsilon) == kLayerNormEpsilon, json,
          "layer_norm_epsilon", "1e-5");
  require(boolean("tie_word_embeddings", true), json, "tie_word_embeddings", "tied embeddings");
  require(boolean("tie_weight", true), json, "tie_weight", "tied embeddings");

  Network network;
  network.architecture = Architecture::kTransformerXl;
  network.vocab_size = json.integer("vocab_size");
  network.d_model = json.integer("d_model");
  network.n_head = json.integer("n_head");
  network.d_head = json.integer("d_head");
  network.d_inner = json.integer("d_inner");
  network.scales = {json.integer("n_layer")};
  network.pre_lnorm = boolean("pre_lnorm", false);
  network.untie_r = boolean("untie_r", true);
  network.clamp_len = integer("clamp_len", -1);
  network.clamp_len = network.clamp_len > 0 ? network.clamp_len : -1;
  network.same_length = boolean("same_length", false);
  network.lengths.segment = integer("tgt_len", kFormerSegment);
  network.lengths.memory = integer("mem_len", 0);
  network.dropout = real("dropout", 0);
  network.dropatt = real("dropatt", 0);
  network.init_std = real("init_std", network.init_std);
  network.proj_init_std = real("proj_init_std", network.proj_init_std);
  if (json.has("cutoffs")) {  // the library divides by them whatever `adaptive` says
    network.cutoffs = json.integers("cutoffs");
  }
  network.div_val = integer("div_val", 1);
  network.d_embed = integer("d_embed", network.d_model);
  const bool share = boolean("proj_share_all_but_first", true);
  network.tie_projs.assign(network.cutoffs.size() + 1, share);
  network.tie_projs.front() = false;
  if (json.has("tie_projs")) {
    network.tie_projs = json.booleans("tie_projs");
  }
  network.check(json.where());
  try {
    make_geometry(network, network.lengths);
  } catch (const ConfigError& error) {
    throw ConfigError(json.where(), error.what());
  }
  return network;
}

}  // namespace ql::net
