// Tensors of all rows of the batch from those that every process has of its own rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "machine/process_group.h"
#include "machine/row_range.h"

namespace ql::train {

// Common (machine/process_group.h). `own` [share.count, ...], float32 on any device, is of the rows
// `share` of `rows`. The result [rows, ...] is on the CPU and has the bits of every process's own.
at::Tensor all_rows(const at::Tensor& own, machine::ProcessGroup& group,
                    const machine::RowRange& share, std::int64_t rows);

}  // namespace ql::train
