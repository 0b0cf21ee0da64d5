// Computes cross entropy and its gradients by blocks of rows and panels of columns, on the CPU and
// outside of autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {

// If gradients are wanted, the exponentials of a block of rows are kept until the block's gradients
// are computed. A block has at most kBlockElements exponentials, or kSmallestBlock rows if these
// have more exponentials. Blocks should have many rows, because all weights are read, and all their
// gradients are updated, once for each block. In float32, kBlockElements take 28 MiB. From 32 MiB
// on, the C library would not keep the buffer for the next step (machine/tensor_memory.h).
constexpr std::int64_t kBlockElements = std::int64_t{7} << 20;
constexpr std::int64_t kSmallestBlock = 128;
// A panel has at most this many columns, so that it is exponentiated and multiplied while it is in
// a cache. One row of a panel fits into the first-level cache.
constexpr std::int64_t kPanelColumns = 1024;

// All tensors are contiguous and, except for the targets, of one dtype, float32 or float64.
struct SoftmaxRows {
  at::Tensor states;          // [rows, width]
  at::Tensor targets;         // [rows] int64: columns of the softmax (SoftmaxColumns)
  at::Tensor factors;         // [rows]; undefined: no gradients are computed
  at::Tensor state_gradient;  // output [rows, width]; undefined: not wanted
};

// Describes a set of columns of the softmax. All columns are numbered in the order of the sets.
struct SoftmaxColumns {
  at::Tensor weight;  // [columns, width]
  at::Tensor bias;    // [columns]
  // These are outputs, in the shapes of `weight` and `bias`. An undefined output is not computed.
  at::Tensor weight_gradient, bias_gradient;
};

// Returns the losses [rows]. If rows.factors is defined, also writes the gradients of sum(factors *
// losses); there must then be at least one row. The gradients need a buffer of at most
// kBlockElements elements, or of kSmallestBlock * (number of all columns) elements if this is more.
at::Tensor softmax_blocks(const SoftmaxRows& rows, const std::vector<SoftmaxColumns>& columns);

}  // namespace ql::kernels
