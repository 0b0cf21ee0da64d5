// Joins the tensors that every process has of its own rows into one of all rows of the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "machine/process_group.h"
#include "machine/row_range.h"

namespace ql::train {

// This call is common (machine/process_group.h). `own` [share.count, ...], float32 on any device,
// belongs to the rows `share` of `rows`. The result [rows, ...] is on the CPU and has the bits of
// every process's own rows.
at::Tensor all_rows(const at::Tensor& own, machine::ProcessGroup& group,
                    const machine::RowRange& share, std::int64_t rows);

}  // namespace ql::train
