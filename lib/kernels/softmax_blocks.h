// Cross entropy and its gradients by blocks of rows and panels of columns, on the CPU; outside of
// autograd.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace ql::kernels {

// All tensors are contiguous and, but for the targets, of one dtype, float32 or float64.
struct SoftmaxRows {
  at::Tensor states;          // [rows, width]
  at::Tensor targets;         // [rows] int64: columns
  at::Tensor factors;         // [rows]; undefined: no gradients are made
  at::Tensor state_gradient;  // [rows, width], written; undefined: not wanted
};

// Some columns of the softmax; those of several sets stand side by side, in the sets' order.
struct SoftmaxColumns {
  at::Tensor weight;                          // [columns, width]
  at::Tensor bias;                            // [columns]
  at::Tensor weight_gradient, bias_gradient;  // alike, written; undefined: not wanted
};

// The losses [rows]. With factors also the gradients of sum(factors * losses), for which there must
// be a row; they take a buffer of 7 * 2^20 numbers or less, or where that is more, of 128 rows.
at::Tensor softmax_blocks(const SoftmaxRows& rows, const std::vector<SoftmaxColumns>& columns);

}  // namespace ql::kernels
