// Tells where attention looks: averages the probability of a key by its distance to the query,
// layer by layer and head by head, over the queries of a stream that count.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "nn/dropout.h"

namespace ql::nn {

class AttentionMap {
 public:
  // Makes an empty map for the layers of this geometry. Throws ConfigError for linear attention,
  // which has no probabilities.
  AttentionMap(const net::Network& network, const net::Geometry& geometry);

  // Adds the attention of one layer: probabilities [batch, n_head, segment, window], the window's
  // last place being the last query's own. A query counts if the newest token of its state is at a
  // place that `counted` has for its row. So padding does not count, and a state that a later step
  // computes again counts once.
  void add(std::int64_t layer, const at::Tensor& probabilities, const std::vector<Places>& counted);

  struct Distance {
    const net::Stage* stage;  // the input of the layer
    std::int64_t head = 0;
    std::int64_t states = 0;  // between query and key; 0 is the query's own place
    // The distance in tokens, as the newest query sees it: a state of scale i stands for g(i), a
    // compressed one for as many as it was made from.
    std::int64_t tokens = 0;
    std::int64_t queries = 0;  // that count and have a key at this distance
    double probability = 0;    // mean over them
  };
  // Returns layers in the order they run, heads and distances ascending.
  std::vector<Distance> distances() const;

 private:
  std::vector<net::Stage> inputs_;  // of the layers
  std::int64_t rate_, segment_;
  std::vector<at::Tensor> sums_;                   // of each layer [n_head, window], by distance
  std::vector<std::vector<std::int64_t>> counts_;  // of each layer [window]
};

}  // namespace ql::nn
