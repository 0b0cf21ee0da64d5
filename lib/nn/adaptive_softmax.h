// The softmax of a network: over the clusters of net/clusters.h, as the public PyTorch
// Transformer-XL has them. One cluster is the plain softmax.
#pragma once

#include "net/network.h"
#include "nn/parameters.h"
#include "nn/softmax.h"

namespace ql::nn {

// The parameters themselves, for the functions of nn/softmax.h.
SoftmaxWeights softmax_weights(const net::Network& network, const Parameters& parameters);

}  // namespace ql::nn
