// Measures the context lengths of a running model by gradients: an output state depends on the
// tokens whose embeddings have a derivative in it, through all memories.
#pragma once

#include <cstdint>
#include <vector>

#include "net/context.h"
#include "net/network.h"
#include "nn/model.h"

namespace ql::nn {

struct MeasureOptions {
  // At most so many random streams are read, and their dependencies are joined. The reading ends
  // earlier with the first stream that adds nothing. A single one may miss a token: a maximum
  // passes the gradient to one of its states, a ReLU that is zero passes none, and the weight of an
  // attention that is sure of another state can underflow.
  std::int64_t streams = 6;
  std::uint64_t seed = 1;
  // A graph may hold about so many numbers. Many positions at once are faster than one by one.
  std::int64_t graph_numbers = std::int64_t{1} << 27;
};

struct MeasuredContext {
  // For each of the n_s positions of a segment, the number of tokens before it back to the oldest
  // one with a gradient that is not zero; 0 when there is none but the position's own.
  std::vector<std::int64_t> lengths;
  std::int64_t streams = 0;        // streams that were read
  std::int64_t stream_tokens = 0;  // tokens of each stream

  net::ContextLength context() const { return net::range_of(lengths); }
};

// Reads random tokens step by step from empty memories, in whole segments and for two segments more
// than the exact length reaches back, such that a dependency further back would show. The memories
// stay in the graph; the last segment's states are differentiated, each by a random projection.
//
// The lengths are never longer than the truth, and shorter only where all streams miss a token.
// `model` should be of float64: the derivative for the oldest token is a product over all layers.
// It is faster when the parameters require no gradient. Throws ConfigError as make_geometry does,
// and Interrupted between passes.
MeasuredContext measure_context(const Model& model, const net::Lengths& lengths,
                                const MeasureOptions& options = {});

}  // namespace ql::nn
