#include "train/all_rows.h"

#include <ATen/ATen.h>

#include <vector>

namespace ql::train {

// Bit patterns are added up as whole numbers. All other processes add zeros, so not even the sign
// of a zero changes.
at::Tensor all_rows(const at::Tensor& own, machine::ProcessGroup& group,
                    const machine::RowRange& share, std::int64_t rows) {
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape[0] = rows;
  const at::Tensor all = at::zeros(shape, own.options().device(at::kCPU));
  all.narrow(0, share.first, share.count).copy_(own);
  group.sum(all.view(at::kInt));
  return all;
}

}  // namespace ql::train
