// Multiplies matrices in the precision of the thread (machine/device.h), on the CPU and outside of
// autograd.
//
// A factor is a matrix as a product takes it: float32 or float64 as it is, or rounded to bfloat16.
// It is rounded once, whatever products it stands in, and a backward pass reads from the factors
// that the forward pass left what precision that had. Sums of products are float32 in any case.
// Matrices are [rows, columns]; their rows or their columns lie side by side.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

// Tells whether products of float32 matrices take factors of bfloat16 in this thread.
bool rounds_factors();

// Returns the matrix as a factor in this thread's precision, and in that of another factor.
at::Tensor as_factor(const at::Tensor& matrix);
at::Tensor as_factor_beside(const at::Tensor& matrix, const at::Tensor& factor);

// a b of two factors.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
// result = a b, and result = result + a b.
void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);
void add_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

}  // namespace ql::kernels
