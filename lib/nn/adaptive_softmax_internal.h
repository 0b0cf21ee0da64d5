// Hands the parameters of a network to the softmax over the clusters of net/clusters.h, which are
// those of the public PyTorch Transformer-XL. One cluster is the plain softmax.
#pragma once

#include "kernels/softmax.h"
#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// Returns the parameters themselves, not copies.
kernels::SoftmaxWeights softmax_weights(const net::Network& network, const Parameters& parameters);

}  // namespace ql::nn
