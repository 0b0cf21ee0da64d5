#include "base/error.h"
#include "net/network_keys_internal.h"

namespace ql::net {
namespace {

constexpr const char* kFromData = "auto";

}  // namespace

void check_with_lengths(const Network& network, const std::string& where) {
  network.check(where);
  try {
    make_geometry(network, network.lengths);
  } catch (const ConfigError& error) {
    throw ConfigError(where, error.what());
  }
}

std::vector<std::string> network_keys() { return key_names<Network>(); }

std::vector<std::string> network_keys_that_may_change() { return key_names<Network>(kMayChange); }

Network network_from_json(const JsonObject& json) {
  Json plain = json.json();
  const bool cutoffs_from_data = json.has("cutoffs") && json.at("cutoffs") == kFromData;
  if (cutoffs_from_data) plain.erase("cutoffs");
  auto network = read_keys<Network>({plain, json.where()});
  network.cutoffs_from_data = cutoffs_from_data;
  if (json.has("d_embed")) {
    json.integer("d_embed", 1);  // 0 stands for d_model, but not in files
  }
  check_with_lengths(network, json.where());
  return network;
}

Json network_to_json(const Network& network) {
  Network resolved = network;
  resolved.d_embed = network.embedding_width();
  resolved.tie_projs = network.resolved_tie_projs();
  Json json = write_keys(resolved);
  if (network.cutoffs_from_data) {
    json["cutoffs"] = kFromData;
    json.erase("tie_projs");  // their number is not known yet
  }
  return json;
}

}  // namespace ql::net
