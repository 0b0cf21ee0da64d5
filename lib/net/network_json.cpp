#include "base/error.h"
#include "net/geometry.h"
#include "net/network.h"

namespace ql::net {
namespace {

constexpr const char* kFromData = "auto";

void check_own_lengths(const Network& network, const std::string& where) {
  try {
    make_geometry(network, network.lengths);
  } catch (const ConfigError& error) {
    throw ConfigError(where, error.what());
  }
}

}  // namespace

const std::vector<std::string>& network_keys() {
  static const std::vector<std::string> keys{"architecture",
                                             "vocab_size",
                                             "d_model",
                                             "n_head",
                                             "d_head",
                                             "d_inner",
                                             "scales",
                                             "output_layers",
                                             "rate",
                                             "pool",
                                             "pre_lnorm",
                                             "untie_r",
                                             "clamp_len",
                                             "segment",
                                             "memory",
                                             "compressed_memory",
                                             "compression_loss",
                                             "reset_memory_at_documents",
                                             "dropout",
                                             "dropatt",
                                             "droppath",
                                             "init_std",
                                             "proj_init_std",
                                             "cutoffs",
                                             "div_val",
                                             "d_embed",
                                             "proj_same_dim",
                                             "tie_projs",
                                             "encoding",
                                             "attention",
                                             "same_length",
                                             "attention_window",
                                             "attention_dilation"};
  return keys;
}

Network network_from_json(const JsonObject& json) {
  json.refuse_unknown({network_keys().begin(), network_keys().end()});
  const auto integer = [&](const char* key, std::int64_t fallback) {
    return json.has(key) ? json.integer(key) : fallback;
  };
  const auto real = [&](const char* key, double fallback) {
    return json.has(key) ? json.real(key) : fallback;
  };
  const auto boolean = [&](const char* key, bool fallback) {
    return json.has(key) ? json.boolean(key) : fallback;
  };

  Network network;
  network.architecture =
      architecture_from_text(json.text("architecture"), json.where() + ": architecture");
  network.vocab_size = integer("vocab_size", network.vocab_size);
  network.d_model = json.integer("d_model");
  network.n_head = json.integer("n_head");
  network.d_head = json.integer("d_head");
  network.d_inner = json.integer("d_inner");
  network.scales = json.integers("scales");
  network.output_layers = integer("output_layers", network.output_layers);
  network.rate = integer("rate", network.rate);
  if (json.has("pool")) {
    network.pool = pool_from_text(json.text("pool"), json.where() + ": pool");
  }
  if (json.has("compression_loss")) {
    network.compression_loss = compression_loss_from_text(json.text("compression_loss"),
                                                          json.where() + ": compression_loss");
  }
  network.pre_lnorm = boolean("pre_lnorm", network.pre_lnorm);
  network.untie_r = boolean("untie_r", network.untie_r);
  network.clamp_len = integer("clamp_len", network.clamp_len);
  network.lengths.segment = json.integer("segment");
  network.lengths.memory = integer("memory", network.lengths.memory);
  network.lengths.compressed_memory =
      integer("compressed_memory", network.lengths.compressed_memory);
  network.reset_memory_at_documents =
      boolean("reset_memory_at_documents", network.reset_memory_at_documents);
  network.dropout = real("dropout", network.dropout);
  network.dropatt = real("dropatt", network.dropatt);
  network.droppath = real("droppath", network.droppath);
  network.init_std = real("init_std", network.init_std);
  network.proj_init_std = real("proj_init_std", network.proj_init_std);
  if (json.has("cutoffs")) {
    network.cutoffs_from_data = json.at("cutoffs") == kFromData;
    network.cutoffs =
        network.cutoffs_from_data ? std::vector<std::int64_t>() : json.integers("cutoffs");
  }
  network.div_val = integer("div_val", network.div_val);
  network.d_embed = json.has("d_embed") ? json.integer("d_embed", 1) : 0;
  network.proj_same_dim = boolean("proj_same_dim", network.proj_same_dim);
  if (json.has("tie_projs")) {
    network.tie_projs = json.booleans("tie_projs");
  }
  if (json.has("encoding")) {
    network.encoding = encoding_from_text(json.text("encoding"), json.where() + ": encoding");
  }
  if (json.has("attention")) {
    network.attention = attention_from_text(json.text("attention"), json.where() + ": attention");
  }
  network.same_length = boolean("same_length", network.same_length);
  network.attention_window = integer("attention_window", network.attention_window);
  if (json.has("attention_dilation")) {
    network.attention_dilation = json.integers("attention_dilation");
  }
  network.check(json.where());
  check_own_lengths(network, json.where());
  return network;
}

Json network_to_json(const Network& network) {
  Json json = Json::object();
  json["architecture"] = to_text(network.architecture);
  json["vocab_size"] = network.vocab_size;
  json["d_model"] = network.d_model;
  json["n_head"] = network.n_head;
  json["d_head"] = network.d_head;
  json["d_inner"] = network.d_inner;
  json["scales"] = network.scales;
  json["output_layers"] = network.output_layers;
  json["rate"] = network.rate;
  json["pool"] = to_text(network.pool);
  json["pre_lnorm"] = network.pre_lnorm;
  json["untie_r"] = network.untie_r;
  json["clamp_len"] = network.clamp_len;
  json["segment"] = network.lengths.segment;
  json["memory"] = network.lengths.memory;
  json["compressed_memory"] = network.lengths.compressed_memory;
  json["compression_loss"] = to_text(network.compression_loss);
  json["reset_memory_at_documents"] = network.reset_memory_at_documents;
  json["dropout"] = network.dropout;
  json["dropatt"] = network.dropatt;
  json["droppath"] = network.droppath;
  json["init_std"] = network.init_std;
  json["proj_init_std"] = network.proj_init_std;
  json["cutoffs"] = network.cutoffs_from_data ? Json(kFromData) : Json(network.cutoffs);
  json["div_val"] = network.div_val;
  json["d_embed"] = network.embedding_width();
  json["proj_same_dim"] = network.proj_same_dim;
  if (!network.cutoffs_from_data) {  // their number is not known yet
    json["tie_projs"] = network.resolved_tie_projs();
  }
  json["encoding"] = to_text(network.encoding);
  json["attention"] = to_text(network.attention);
  json["same_length"] = network.same_length;
  json["attention_window"] = network.attention_window;
  json["attention_dilation"] = network.attention_dilation;
  return json;
}

}  // namespace ql::net
