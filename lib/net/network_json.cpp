#include "base/error.h"
#include "net/network_keys_internal.h"

namespace ql::net {
namespace {

constexpr const char* kFromData = "auto";

void find_conflicts_with_lengths(const Network& network, const std::string& where,
                                 Conflicts& conflicts) {
  find_conflicts(network, where, conflicts);
  try {
    network.check_layers();
  } catch (const ConfigError&) {
    return;  // found above: no lengths fit such layers
  }
  try {
    make_geometry(network, network.lengths);
  } catch (const ConfigError& error) {
    conflicts.add(where, error.what());
  }
}

}  // namespace

void check_with_lengths(const Network& network, const std::string& where) {
  Conflicts conflicts;
  find_conflicts_with_lengths(network, where, conflicts);
  conflicts.raise();
}

std::vector<std::string> network_keys() { return key_names<Network>(); }

std::vector<std::string> network_keys_that_may_change() { return key_names<Network>(kMayChange); }

Network network_from_json(const JsonObject& json) {
  Conflicts conflicts;
  Network network = network_from_json(json, conflicts);
  conflicts.raise();
  return network;
}

Network network_from_json(const JsonObject& json, Conflicts& conflicts) {
  Json plain = json.json();
  const bool cutoffs_from_data = json.has("cutoffs") && json.at("cutoffs") == kFromData;
  if (cutoffs_from_data) plain.erase("cutoffs");
  auto network = read_keys<Network>({plain, json.where()}, conflicts);
  network.cutoffs_from_data = cutoffs_from_data;
  if (json.has("d_embed")) {
    json.integer("d_embed", 1);  // 0 stands for d_model, but not in files
  }
  find_conflicts_with_lengths(network, json.where(), conflicts);
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
