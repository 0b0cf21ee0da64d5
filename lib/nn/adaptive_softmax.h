// Adaptive softmax (Grave et al. 2017) over the clusters of net/clusters.h, as the public PyTorch
// Transformer-XL has it: the head decides between the ids of the first cluster and the other
// clusters, a tail decides within its cluster. One cluster is the plain softmax.
#pragma once

#include <ATen/ATen.h>

#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// -log p(target) for every row, in the rows' order: states [rows, d_model], targets [rows] int64.
// Returns [rows].
at::Tensor adaptive_cross_entropy(const net::Network& network, const Parameters& parameters,
                                  const at::Tensor& states, const at::Tensor& targets);

}  // namespace ql::nn
