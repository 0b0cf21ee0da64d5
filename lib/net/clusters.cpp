#include "net/clusters.h"

namespace ql::net {

std::vector<Cluster> clusters(const Network& network) {
  std::vector<Cluster> all;
  std::int64_t begin = 0;
  std::int64_t width = network.embedding_width();
  for (std::size_t i = 0; i <= network.cutoffs.size(); ++i) {
    Cluster cluster;
    cluster.begin = begin;
    cluster.end = i < network.cutoffs.size() ? network.cutoffs[i] : network.vocab_size;
    cluster.width = width;
    cluster.projected =
        width != network.d_model || (!shares_embedding(network) && network.proj_same_dim);
    cluster.tied_projection = network.resolved_tie_projs()[i];
    all.push_back(cluster);
    begin = cluster.end;
    width /= network.div_val;
  }
  return all;
}

}  // namespace ql::net
