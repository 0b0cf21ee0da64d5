// The softmax of a network: over the clusters of net/clusters.h, as the public PyTorch
// Transformer-XL has them. One cluster is the plain softmax.
#pragma once

#include "kernels/softmax.h"
#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// The parameters themselves, for the functions of kernels/softmax.h.
kernels::SoftmaxWeights softmax_weights(const net::Network& network, const Parameters& parameters);

}  // namespace ql::nn
