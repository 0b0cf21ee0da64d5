// Matrix products in the precision of their weights, on the CPU and outside of autograd.
//
// An operand is a matrix in the form that a product takes: float32 or float64 unchanged, or rounded
// to bfloat16. It is rounded once, however many products use it. A weight has the precision of its
// parameter, other matrices that of the operand beside them. A backward pass takes its precision
// from the operands that the forward pass kept. Sums of products are always float32. Matrices are
// [rows, columns]; the elements of a row or of a column must be contiguous.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

// Returns zeros that require a gradient. On the CPU their memory has a place for a rounded copy,
// which views and detached tensors share.
at::Tensor make_parameter(at::IntArrayRef shape, const at::TensorOptions& options);

// Makes the rounded copy of a float32 parameter, or drops it. While there is one, products take it,
// so the parameter must not change. No product may run meanwhile.
void set_rounded(const at::Tensor& parameter, bool rounded);

// Returns the weight as an operand: if it is a parameter with a rounded copy, or a view of one, the
// same view of the copy. If `scales` are defined, each column is multiplied by its scale before it
// is rounded.
at::Tensor weight_factor(const at::Tensor& weight, const at::Tensor& scales = {});

// Returns the matrix as an operand in the precision of another operand.
at::Tensor to_operand(const at::Tensor& matrix, const at::Tensor& factor);

// Returns the buffer to which the last kernel that changes the matrix writes it as an operand, in
// the precision of another operand: a new tensor if elements are rounded, otherwise the matrix
// itself.
at::Tensor operand_buffer(const at::Tensor& matrix, const at::Tensor& factor);

// A product outside of a piece is divided among threads, into pieces (machine/threads.h) that its
// sizes alone decide, so that its bits do not depend on the number of threads. A product of few
// rows has a kernel of our own, which reads every weight once; a BLAS copies the weights first.

// While it lives, products of this thread that set a result use that kernel for any number of rows.
// The result of a row does not depend on the other rows or on their number, to the last bit: rows
// computed together are the same as each computed alone. Other code that computes several streams
// asks live() and does the same.
class BatchInvariant {
 public:
  BatchInvariant();
  ~BatchInvariant();
  BatchInvariant(BatchInvariant&&) = delete;

  static bool live();

 private:
  bool before_;
};

// Returns a b for two operands, plus `bias` [columns] in each row if that is defined. Rows of
// float32 beside an operand of bfloat16 are rounded.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// Sets result = a b, or result = result + a b with `add`.
void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add = false);

// Returns the sum over the first dimension, as a product with ones. The bits of at::sum() depend on
// the number of threads where it has AVX-512.
at::Tensor sum_over_first(const at::Tensor& tensor);

}  // namespace ql::kernels
