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

// Returns the weight as a factor, each column multiplied by its number of `scales` before, if they
// are defined. A network's parameters, and parts of them, are rounded once as long as this
// precision is set (machine/product_precision.h).
at::Tensor weight_factor(const at::Tensor& weight, const at::Tensor& scales = {});

// Returns where the kernel that changes the matrix last puts it as a factor, in the precision of
// another factor: a new tensor for rounded numbers, or the matrix itself.
at::Tensor place_of_factor(const at::Tensor& matrix, const at::Tensor& factor);

// a b of two factors. Each row gets `bias` [columns] as well, if that is defined.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// result = a b, with a bias likewise, and result = result + a b.
void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                 const at::Tensor& bias = {});
void add_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

}  // namespace ql::kernels
