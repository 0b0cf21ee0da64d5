// Computes cross entropy and its gradients by blocks of rows and panels of columns, on the CPU and
// outside of autograd.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace ql::kernels {

// A block of rows reads all weights and adds to all their gradients, so it should have many rows.
// Its exponentials are kept until their sums are known. In float32 this is just below the size that
// the C library keeps for the next step (keep_freed_memory() in machine/threads.h).
constexpr std::int64_t kBlockElements = std::int64_t{7} << 20;
constexpr std::int64_t kSmallestBlock = 128;
// A panel of columns is exponentiated and multiplied while it is in a cache, and one of its rows
// fits into the first-level cache.
constexpr std::int64_t kPanelColumns = 2048;

// All tensors are contiguous and, except for the targets, of one dtype, float32 or float64.
struct SoftmaxRows {
  at::Tensor states;          // [rows, width]
  at::Tensor targets;         // [rows] int64: columns
  at::Tensor factors;         // [rows]; undefined: no gradients are made
  at::Tensor state_gradient;  // [rows, width], written; undefined: not wanted
};

// Describes some columns of the softmax. The columns of several sets follow one another in the
// sets' order.
struct SoftmaxColumns {
  at::Tensor weight;                          // [columns, width]
  at::Tensor bias;                            // [columns]
  at::Tensor weight_gradient, bias_gradient;  // of these shapes, written; undefined: not wanted
};

// Returns the losses [rows]. With factors it also writes the gradients of sum(factors * losses);
// then there must be at least one row. Gradients take a buffer of at most 7 * 2^20 elements, or of
// 128 rows if that is more.
at::Tensor softmax_blocks(const SoftmaxRows& rows, const std::vector<SoftmaxColumns>& columns);

}  // namespace ql::kernels
