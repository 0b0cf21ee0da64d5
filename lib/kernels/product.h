// Multiplies matrices in the precision of the thread (machine/device.h), on the CPU and outside of
// autograd.
//
// An operand is a matrix in the form that a product takes: float32 or float64 unchanged, or rounded
// to bfloat16. It is rounded once, however many products use it. A backward pass takes its
// precision from the operands that the forward pass kept. Sums of products are always float32.
// Matrices are [rows, columns]; the elements of a row or of a column must be contiguous.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

// Returns true if products of float32 matrices take operands of bfloat16 in this thread.
bool rounds_factors();

// Returns the matrix as an operand in this thread's precision, or in the precision of another
// operand.
at::Tensor to_operand(const at::Tensor& matrix);
at::Tensor as_factor_beside(const at::Tensor& matrix, const at::Tensor& factor);

// Returns the weight as an operand; if `scales` are defined, each column is multiplied by its scale
// first. A network's parameters, and parts of them, are rounded once while this precision is set
// (machine/product_precision.h).
at::Tensor weight_factor(const at::Tensor& weight, const at::Tensor& scales = {});

// Returns the buffer to which the last kernel that changes the matrix writes it as an operand, in
// the precision of another operand: a new tensor if elements are rounded, otherwise the matrix
// itself.
at::Tensor operand_buffer(const at::Tensor& matrix, const at::Tensor& factor);

// Returns a b for two operands, plus `bias` [columns] in each row if that is defined.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// Set result = a b (with a bias in the same way), and result = result + a b.
void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                 const at::Tensor& bias = {});
void add_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

}  // namespace ql::kernels
