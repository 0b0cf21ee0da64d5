#include "nn/embedding.h"

#include <cmath>

#include "net/clusters.h"
#include "nn/layers.h"

namespace ql::nn {
namespace {

at::Tensor look_up(const at::Tensor& table, const at::Tensor& projection, const at::Tensor& ids) {
  const at::Tensor vectors = at::embedding(table, ids);
  return projection.defined() ? at::linear(vectors, projection) : vectors;
}

at::Tensor look_up_clusters(const net::Network& network, const Parameters& parameters,
                            const at::Tensor& ids) {
  at::Tensor vectors =
      at::zeros({ids.size(0), network.d_model}, parameters.embeddings.front().options());
  const std::vector<net::Cluster> clusters = net::clusters(network);
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    const at::Tensor rows =
        at::nonzero(ids.ge(clusters[i].begin).logical_and(ids.lt(clusters[i].end))).squeeze(1);
    if (rows.numel() > 0) {
      const at::Tensor own = ids.index_select(0, rows) - clusters[i].begin;
      vectors = vectors.index_copy(
          0, rows, look_up(parameters.embeddings[i], parameters.embedding_projections[i], own));
    }
  }
  return vectors;
}

}  // namespace

at::Tensor embed(const net::Network& network, const Parameters& parameters, const at::Tensor& ids) {
  const at::Tensor vectors =
      net::shares_embedding(network)
          ? look_up(parameters.embeddings.front(), parameters.embedding_projections.front(), ids)
          : look_up_clusters(network, parameters, ids.flatten())
                .view({ids.size(0), ids.size(1), network.d_model});
  const at::Tensor scaled = vectors * std::sqrt(static_cast<double>(network.d_model));
  if (network.encoding != net::Encoding::kAbsolute) {
    return scaled;
  }
  return scaled + position_table(network, ids.size(1), scaled.options()).flip(0);
}

}  // namespace ql::nn
