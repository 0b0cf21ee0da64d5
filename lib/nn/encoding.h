// Computes the vectors by which attention distinguishes positions. The rows of
// net::kEncodings have the parameters, costs and rules of each encoding of positions.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// Every layer gets the scores of positions in three steps. position_table() makes a table, which
// does not depend on weights or tokens; training may drop elements of the table. position_scores()
// turns the table of a window into a vector for each distance and head. kernels/attention.h, which
// does not depend on the encoding, adds the products of queries with these vectors to the content
// scores.

// Returns `embedded`, the embeddings [batch, length, d_model] of tokens, plus what the encoding
// adds to them. The first of these tokens is at index `place` of its segment.
at::Tensor add_places(const net::Network& network, const at::Tensor& embedded, std::int64_t place);

// Returns the table of a window: row k belongs to the distance length - 1 - k, so a shorter window
// uses the last rows. A table of sinusoids is [length, d_model]. An encoding that needs only the
// length has an empty table [length, 0].
at::Tensor position_table(const net::Network& network, std::int64_t length,
                          const at::TensorOptions& options);

// Returns the `positions` of kernels::AttentionInput: for every distance and head a vector,
// [window, n_head, d_head]. `table` is the position_table() of the window. The result is undefined
// if the encoding does not use distances.
at::Tensor position_scores(const net::Network& network, const AttentionParameters& parameters,
                           const at::Tensor& table);

}  // namespace ql::nn
