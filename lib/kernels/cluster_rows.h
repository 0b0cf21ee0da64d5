// Which rows of a batch belong to which cluster of the vocabulary (net/clusters.h).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {

// All rows, grouped by the cluster of their id; inside a cluster they ascend.
struct ClusterRows {
  at::Tensor rows;                   // [rows] int64
  at::Tensor ids;                    // [rows] int64, counted from the first id of the cluster
  at::Tensor places;                 // [rows] int64: where `rows` names row i
  std::vector<std::int64_t> begins;  // of the clusters in `rows`, and its end

  std::int64_t count(std::size_t cluster) const { return begins[cluster + 1] - begins[cluster]; }
  at::Tensor rows_of(std::size_t cluster) const {
    return rows.narrow(0, begins[cluster], count(cluster));
  }
  at::Tensor ids_of(std::size_t cluster) const {
    return ids.narrow(0, begins[cluster], count(cluster));
  }
};

// `ids` [rows] int64, all below ends.back(); `ends` ascends, one end of ids a cluster. The tensors
// are made on the CPU and lie on the device of `ids`: another device waits once, not once a
// cluster.
ClusterRows rows_by_cluster(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

// What the head has to predict: an id of the first cluster itself, for cluster i > 0 its column
// head_size - i (the public code reads column -i: the clusters' columns stand in reverse, after
// the ids of the first cluster).
at::Tensor head_targets(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

}  // namespace ql::kernels
