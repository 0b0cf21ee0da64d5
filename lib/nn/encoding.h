// Encodings: how attention gets the positions of queries and keys. The rows of net::kEncodings have
// their parameters, costs and rules; here are their tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// Every layer gets the scores of positions in three steps. position_table() makes what depends on
// lengths alone; training may drop elements of it. position_scores() turns the table of a window
// into scores by distance. kernels/attention.h adds these to the scores of a query and a key, and
// knows no encoding.

// Returns the embeddings [batch, length, d_model] of tokens with what the encoding adds to them.
// `place` is the place of the first token in its segment.
at::Tensor add_places(const net::Network& network, const at::Tensor& embedded, std::int64_t place);

// Returns the table of a window: row k is the distance length - 1 - k, so that a shorter window has
// the last rows. Sinusoids are [length, d_model]. An encoding that needs only the length has a
// table of [length, 0].
at::Tensor position_table(const net::Network& network, std::int64_t length,
                          const at::TensorOptions& options);

// Returns the `positions` of kernels::AttentionInput for the table of a window: a vector for every
// distance and head, [window, n_head, d_head], or its score, [window, n_head]. Undefined: none.
at::Tensor position_scores(const net::Network& network, const AttentionParameters& parameters,
                           const at::Tensor& table);

}  // namespace ql::nn
