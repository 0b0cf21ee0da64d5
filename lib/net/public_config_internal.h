// Reads the configuration that a popular Python library keeps beside Transformer-XL weights
// (config.json with the keys of its TransfoXLConfig).
#pragma once

#include "base/json.h"
#include "net/network.h"

namespace ql::net {

// True when the object is such a configuration: "model_type" is "transfo-xl".
bool is_public_config(const Json& json);

// The network: architecture transformer-xl, memory mem_len, segment tgt_len (newer files do not
// have it: 128, the library's former default). Keys about generation and of the library itself are
// passed over. Throws ConfigError for what this network cannot do, as another attention, with the
// key, and for lengths that do not fit.
Network network_from_public_config(const JsonObject& json);

}  // namespace ql::net
