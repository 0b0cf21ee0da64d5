// Groups the rows of a batch by the cluster of the vocabulary that they belong to (net/clusters.h).
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
  std::vector<std::int64_t> begins;  // of each cluster in `rows`, then its end

  std::int64_t count(std::size_t cluster) const { return begins[cluster + 1] - begins[cluster]; }
  at::Tensor rows_of(std::size_t cluster) const {
    return rows.narrow(0, begins[cluster], count(cluster));
  }
  at::Tensor ids_of(std::size_t cluster) const {
    return ids.narrow(0, begins[cluster], count(cluster));
  }
};

// `ids` [rows] int64 must be below ends.back(); `ends` ascends and has the end of every cluster's
// ids. The tensors are made on the CPU and copied to the device of `ids`, so that another device
// waits once and not for every cluster.
ClusterRows rows_by_cluster(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

// Returns the targets of the head. An id of the first cluster is its own target. For cluster i > 0
// the target is column head_size - i: as in the public code, which reads column -i, the clusters'
// columns stand in reverse after the ids of the first cluster.
at::Tensor head_targets(const at::Tensor& ids, const std::vector<std::int64_t>& ends);

}  // namespace ql::kernels
