#include "nn/embedding_internal.h"

#include <cmath>
#include <vector>

#include "kernels/cluster_rows.h"
#include "kernels/projection.h"
#include "net/clusters.h"
#include "nn/layers_internal.h"

namespace ql::nn {
namespace {

at::Tensor look_up(const at::Tensor& table, const at::Tensor& projection, const at::Tensor& ids) {
  const at::Tensor vectors = at::embedding(table, ids);
  return projection.defined() ? kernels::project(vectors, projection) : vectors;
}

// ids [rows]; returns [rows, d_model]. Looks up cluster after cluster, then restores the rows'
// order.
at::Tensor look_up_clusters(const net::Network& network, const Parameters& parameters,
                            const at::Tensor& ids) {
  std::vector<std::int64_t> ends;
  for (const net::Cluster& cluster : net::clusters(network)) ends.push_back(cluster.end);
  const kernels::ClusterRows rows = kernels::rows_by_cluster(ids, ends);
  std::vector<at::Tensor> vectors;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (rows.count(i) > 0) {
      vectors.push_back(
          look_up(parameters.embeddings[i], parameters.embedding_projections[i], rows.ids_of(i)));
    }
  }
  return at::cat(vectors).index_select(0, rows.places);
}

}  // namespace

at::Tensor embed(const net::Network& network, const Parameters& parameters, const at::Tensor& ids,
                 std::int64_t place) {
  const at::Tensor vectors =
      net::shares_embedding(network)
          ? look_up(parameters.embeddings.front(), parameters.embedding_projections.front(), ids)
          : look_up_clusters(network, parameters, ids.flatten())
                .view({ids.size(0), ids.size(1), network.d_model});
  const at::Tensor scaled = vectors * std::sqrt(static_cast<double>(network.d_model));
  if (network.encoding != net::Encoding::kAbsolute) return scaled;
  return scaled + position_table(network, ids.size(1), scaled.options(), place).flip(0);
}

}  // namespace ql::nn
