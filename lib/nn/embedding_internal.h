// Adaptive input: turns ids into vectors of d_model, with the clusters of net/clusters.h.
#pragma once

#include <ATen/ATen.h>

#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// ids [batch, segment] int64, all in the vocabulary. Returns [batch, segment, d_model], scaled by
// sqrt(d_model), plus the sinusoids of the places from `place` on if the encoding is absolute.
at::Tensor embed(const net::Network& network, const Parameters& parameters, const at::Tensor& ids,
                 std::int64_t place);

}  // namespace ql::nn
