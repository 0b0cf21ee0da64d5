#include "nn/adaptive_softmax.h"

#include "net/clusters.h"
#include "nn/softmax.h"

namespace ql::nn {
namespace {

// Embeddings and biases of one cluster's ids, and the states as they are compared with them.
struct Layer {
  at::Tensor weight, bias, projection;

  at::Tensor project(const at::Tensor& states) const {
    return projection.defined() ? at::matmul(states, projection) : states;
  }
};

Layer layer_of(const net::Network& network, const Parameters& parameters, std::size_t index,
               const net::Cluster& cluster) {
  const at::Tensor& projection = parameters.output_projections[index];
  if (net::shares_embedding(network)) {
    return {parameters.embeddings.front().narrow(0, cluster.begin, cluster.size()),
            parameters.output_biases.front().narrow(0, cluster.begin, cluster.size()), projection};
  }
  return {parameters.embeddings[index], parameters.output_biases[index], projection};
}

}  // namespace

at::Tensor adaptive_cross_entropy(const net::Network& network, const Parameters& parameters,
                                  const at::Tensor& states, const at::Tensor& targets) {
  const std::vector<net::Cluster> clusters = net::clusters(network);
  const Layer head = layer_of(network, parameters, 0, clusters.front());
  if (clusters.size() == 1) {
    return cross_entropy(head.project(states), head.weight, head.bias, targets);
  }
  const auto tails = static_cast<std::int64_t>(clusters.size()) - 1;
  const std::int64_t head_size = clusters.front().size() + tails;

  std::vector<at::Tensor> rows(clusters.size());
  at::Tensor head_targets = targets.clone();
  for (std::size_t i = 1; i < clusters.size(); ++i) {
    const at::Tensor inside =
        targets.ge(clusters[i].begin).logical_and(targets.lt(clusters[i].end));
    rows[i] = at::nonzero(inside).squeeze(1);
    // The public code reads column -i for cluster i: the clusters' columns stand in reverse.
    head_targets.masked_fill_(inside, head_size - static_cast<std::int64_t>(i));
  }
  at::Tensor losses =
      cross_entropy(head.project(states), at::cat({head.weight, parameters.cluster_weight}),
                    at::cat({head.bias, parameters.cluster_bias}), head_targets);
  for (std::size_t i = 1; i < clusters.size(); ++i) {
    if (rows[i].numel() == 0) {
      continue;
    }
    const Layer tail = layer_of(network, parameters, i, clusters[i]);
    losses = losses.index_add(
        0, rows[i],
        cross_entropy(tail.project(states.index_select(0, rows[i])), tail.weight, tail.bias,
                      targets.index_select(0, rows[i]) - clusters[i].begin));
  }
  return losses;
}

}  // namespace ql::nn
