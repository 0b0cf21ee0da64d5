#include "nn/adaptive_softmax_internal.h"

#include "net/clusters.h"

namespace ql::nn {

kernels::SoftmaxWeights softmax_weights(const net::Network& network, const Parameters& parameters) {
  kernels::SoftmaxWeights weights;
  for (const net::Cluster& cluster : net::clusters(network)) weights.ends.push_back(cluster.end);
  weights.weights = parameters.embeddings;
  weights.biases = parameters.output_biases;
  weights.projections = parameters.output_projections;
  weights.cluster_weight = parameters.cluster_weight;
  weights.cluster_bias = parameters.cluster_bias;
  return weights;
}

}  // namespace ql::nn
