// Measures a running model: where its attention goes, and its context lengths.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/context.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/model.h"
#include "nn/step_options.h"

namespace ql::nn {

// Averages the attention probability of keys by their distance to the query, for each layer and
// each head.
class AttentionMap {
 public:
  // Makes an empty map for the layers of this geometry. Throws ConfigError for linear attention,
  // which has no probabilities, and for query_only_pooling, whose distances have no common unit.
  AttentionMap(const net::Network& network, const net::Geometry& geometry);

  // Adds the attention of one layer: probabilities [batch, n_head, segment, window]. The last query
  // is at the window's last index. `counted` has a range of tokens of the segment for each row of
  // the batch. A query enters the average if the newest token of its state is in this range. So a
  // caller can leave padding out. A state that is computed again does not enter a second time,
  // because its newest token is in an earlier segment.
  void add(std::int64_t layer, const at::Tensor& probabilities, const std::vector<Places>& counted);

  struct Distance {
    const net::Stage* stage;  // the input of the layer
    std::int64_t head = 0;
    std::int64_t states = 0;  // distance from query to key; 0 at the query's own index
    // This is the distance in tokens from query to key, the mean over the averaged queries. A state
    // of scale i stands for g(i) tokens, and a compressed state of a Compressive Transformer for
    // `rate` tokens. Later queries of a segment have more states before the compressed ones.
    double tokens = 0;
    std::int64_t queries = 0;  // averaged queries that have a key at this distance
    double probability = 0;    // mean over these queries
  };
  // Returns an element for every layer, head and distance, sorted in this order. Layers are in the
  // order in which they run.
  std::vector<Distance> distances() const;

 private:
  // Returns the tokens from a query of the segment to the key at a distance.
  std::int64_t tokens_to(const net::Stage& input, std::int64_t query, std::int64_t states) const;

  std::vector<net::Stage> inputs_;  // of each layer
  std::int64_t rate_, segment_;
  // For each layer, sums_ has summed probabilities [n_head, window], and the other two have the
  // number of queries and their tokens [window]. The last index is the distance.
  std::vector<at::Tensor> sums_;
  std::vector<std::vector<std::int64_t>> counts_;
  std::vector<std::vector<std::int64_t>> token_sums_;  // of the queries' tokens_to()
};

// Measures the context lengths of a running model by gradients: an output state depends on a token
// if its gradient with respect to the token's embedding, through all memories, is not zero.

struct MeasureOptions {
  // At most this many random streams are read, and their dependencies are joined. Reading ends
  // earlier with the first stream that adds nothing. A single stream may miss a token: a maximum
  // over states passes the gradient to only one of them, a ReLU that is zero passes no gradient,
  // and an attention weight can underflow if another state has almost all of the probability.
  std::int64_t streams = 6;
  std::uint64_t seed = 1;
  // One backward pass computes the gradients of several positions, because this is faster: as
  // many as fit into a graph of about this many elements, but at least one.
  std::int64_t graph_numbers = std::int64_t{1} << 27;
};

struct MeasuredContext {
  // For each of the n_s positions of a segment, this is the number of tokens from the position back
  // to the oldest token with a nonzero gradient; 0 if no earlier token has one.
  std::vector<std::int64_t> lengths;
  std::int64_t streams = 0;        // streams that were read
  std::int64_t stream_tokens = 0;  // tokens of each stream

  net::ContextLength context() const { return net::range_of(lengths); }
};

// Reads segments of random tokens, beginning with memories of zeros. It reads two segments more
// than the exact length reaches back, so that a dependency further back would show. The memories
// stay in the graph. A random projection of each state of the last segment is differentiated.
//
// A measured length is never too long. It is too short only if no stream has a nonzero gradient for
// the oldest token (MeasureOptions::streams). `model` should be float64, because the derivative for
// the oldest token is a product over all layers and may underflow. The measurement is faster if the
// parameters require no gradient. Throws ConfigError as make_geometry does and if the graph is too
// large, Error if a gradient is not finite, and Interrupted between passes.
MeasuredContext measure_context(const Model& model, const net::Lengths& lengths,
                                const MeasureOptions& options = {});

}  // namespace ql::nn
