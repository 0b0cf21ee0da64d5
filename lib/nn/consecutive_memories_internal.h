// The memories of many consecutive steps of one stream at once. A layer needs nothing of the layers
// after it, so a whole chunk of the stream can go through it before the next layer begins: the
// steps are then the rows of a batch, and each has the memory that the rows before it left.
#pragma once

#include <ATen/ATen.h>

namespace ql::nn {

// Row k [steps, length, ...] is the memory before step k: the last `length` of concat(carry,
// entering[0], .., entering[k-1]). `carry` [1, length, ...] is the memory before the first step,
// `entering` [steps, shift, ...] what enters it in each step. The result may share storage.
at::Tensor memories_before(const at::Tensor& carry, const at::Tensor& entering);

// The memory [1, length, ...] after the last step; of its own storage.
at::Tensor memory_after(const at::Tensor& carry, const at::Tensor& entering);

}  // namespace ql::nn
