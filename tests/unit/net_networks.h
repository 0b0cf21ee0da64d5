// Makes networks for the tests of lib/net.
#pragma once

#include <utility>
#include <vector>

#include "net/network.h"

namespace ql::net::testing {

// Makes networks of layers only, on which the lengths depend.
inline Network make_network(Architecture architecture, std::vector<std::int64_t> scales,
                            std::int64_t output_layers = 0, std::int64_t rate = 2) {
  Network network;
  network.architecture = architecture;
  network.scales = std::move(scales);
  network.output_layers = output_layers;
  network.rate = rate;
  return network;
}

inline Network quadratic(std::vector<std::int64_t> scales, std::int64_t output_layers,
                         std::int64_t rate = 2) {
  return make_network(Architecture::kTransformerQl, std::move(scales), output_layers, rate);
}

// Returns 3 + 3 + 2 layers, compressed by 2, which is the network of all the paper's tables.
inline Network paper_ql() { return quadratic({3, 3}, 2); }

inline Network xl(std::int64_t layers) {
  return make_network(Architecture::kTransformerXl, {layers});
}

inline Network compressive(std::int64_t layers, std::int64_t rate = 2) {
  return make_network(Architecture::kCompressive, {layers}, 0, rate);
}

inline Network multi_scale(std::vector<std::int64_t> scales, std::int64_t output_layers,
                           std::int64_t rate = 2) {
  return make_network(Architecture::kMultiScale, std::move(scales), output_layers, rate);
}

inline Network vanilla(std::int64_t layers) {
  return make_network(Architecture::kVanilla, {layers});
}

// Gives the network the sizes of the paper's SimpleBooks-2 networks.
inline Network with_sizes(Network network) {
  network.vocab_size = 11492;
  network.d_model = 256;
  network.n_head = 4;
  network.d_head = 64;
  network.d_inner = 1024;
  return network;
}

}  // namespace ql::net::testing
