// Lists networks whose dependencies are found by running them.
#pragma once

#include <cstdint>
#include <vector>

#include "net/network.h"
#include "nn_support.h"

namespace ql::test {

struct DependencyCase {
  net::Architecture architecture;
  std::vector<std::int64_t> scales;
  std::int64_t output_layers;
  net::Lengths lengths;
  std::int64_t rate;
  net::Pool pool = net::Pool::kMax;
  bool query_only_pooling = false;
};

const DependencyCase kDependencyCases[] = {
    {kQl, {1, 1}, 1, {4, 12, 0}, 2},  // the paper's training lengths, fewer layers
    {kQl, {2, 1}, 1, {4, 4, 0}, 2},
    {kQl, {1, 1}, 0, {8, 4, 0}, 2},
    {kQl, {2, 2}, 1, {8, 0, 0}, 2},
    {kQl, {1, 1, 1}, 1, {4, 4, 0}, 2},
    {kQl, {1, 1}, 1, {8, 24, 0}, 4},
    {kQl, {1, 1}, 1, {3, 9, 0}, 3},
    {kQl, {1, 1, 1}, 0, {9, 9, 0}, 3},
    {kQl, {1, 1}, 1, {2, 6, 0}, 2},
    {net::Architecture::kTransformerXl, {3}, 0, {4, 7, 0}, 2},
    {net::Architecture::kTransformerXl, {2}, 0, {6, 2, 0}, 2},
    {kCompressive, {2}, 0, {4, 6, 6}, 2},
    {kCompressive, {2}, 0, {6, 0, 3}, 3},
    {kCompressive, {2}, 0, {4, 6, 1}, 2},
    {kCompressive, {2}, 0, {6, 0, 3}, 3, net::Pool::kConvolution},
    {kCompressive, {2}, 0, {6, 0, 3}, 3, net::Pool::kDilatedConvolution},
    {kCompressive, {2}, 0, {4, 6, 6}, 2, net::Pool::kDilatedConvolution},
    {kCompressive, {2}, 0, {6, 2, 1}, 2, net::Pool::kDilatedConvolution},
    {kCompressive, {1}, 0, {9, 4, 5}, 3, net::Pool::kDilatedConvolution},
    {kCompressive, {2}, 0, {3, 4, 2}, 3, net::Pool::kDilatedConvolution},
    {net::Architecture::kMultiScale, {1, 1}, 1, {8, 0, 0}, 2},
    {net::Architecture::kMultiScale, {1, 1, 1}, 1, {8, 0, 0}, 2},
    {net::Architecture::kVanilla, {2}, 0, {7, 0, 0}, 2},
    {kQl, {1, 1}, 1, {4, 12, 0}, 2, net::Pool::kMean, true},
    {kQl, {1, 2, 1}, 0, {4, 4, 0}, 2, net::Pool::kMax, true},
    {kQl, {1, 1}, 1, {3, 9, 0}, 3, net::Pool::kMax, true},
    {net::Architecture::kMultiScale, {1, 1, 1}, 1, {8, 0, 0}, 2, net::Pool::kMax, true},
};

inline net::Network network_of(const DependencyCase& entry) {
  net::Network network =
      small_network(entry.architecture, entry.scales, entry.output_layers, entry.lengths);
  network.rate = entry.rate;
  network.pool = entry.pool;
  network.query_only_pooling = entry.query_only_pooling;
  return network;
}

}  // namespace ql::test
