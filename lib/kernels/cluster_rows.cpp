#include "kernels/cluster_rows.h"

#include <algorithm>

namespace ql::kernels {
namespace {

std::size_t cluster_of(std::int64_t id, const std::vector<std::int64_t>& ends) {
  return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), id) - ends.begin());
}

}  // namespace

ClusterRows rows_by_cluster(const at::Tensor& ids, const std::vector<std::int64_t>& ends) {
  const at::Tensor own_ids = ids.to(at::kCPU).contiguous();
  const std::int64_t* values = own_ids.data_ptr<std::int64_t>();
  const std::int64_t count = own_ids.numel();
  ClusterRows result;
  result.begins.assign(ends.size() + 1, 0);
  for (std::int64_t row = 0; row < count; ++row) ++result.begins[cluster_of(values[row], ends) + 1];
  for (std::size_t i = 0; i < ends.size(); ++i) result.begins[i + 1] += result.begins[i];
  const at::Tensor rows = at::empty_like(own_ids), inside = at::empty_like(own_ids);
  const at::Tensor places = at::empty_like(own_ids);
  std::vector<std::int64_t> next = result.begins;
  for (std::int64_t row = 0; row < count; ++row) {
    const std::size_t cluster = cluster_of(values[row], ends);
    const std::int64_t place = next[cluster]++;
    rows.data_ptr<std::int64_t>()[place] = row;
    inside.data_ptr<std::int64_t>()[place] = values[row] - (cluster > 0 ? ends[cluster - 1] : 0);
    places.data_ptr<std::int64_t>()[row] = place;
  }
  result.rows = rows.to(ids.device());
  result.ids = inside.to(ids.device());
  result.places = places.to(ids.device());
  return result;
}

at::Tensor head_targets(const at::Tensor& ids, const std::vector<std::int64_t>& ends) {
  const auto clusters = static_cast<std::int64_t>(ends.size());
  const std::int64_t head_size = ends.front() + clusters - 1;
  at::Tensor targets = ids.clone();
  // Later clusters overwrite what the ones before them have set.
  for (std::size_t i = 1; i < ends.size(); ++i) {
    targets.masked_fill_(ids.ge(ends[i - 1]), head_size - static_cast<std::int64_t>(i));
  }
  return targets;
}

}  // namespace ql::kernels
