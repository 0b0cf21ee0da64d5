// Computes matrix products in the precision of their weights, on the CPU and outside of autograd.
//
// An operand is a matrix in the form that a matrix product takes: unchanged float32 or float64, or
// rounded to bfloat16. A caller makes one operand for all products of a matrix, so that the matrix
// is rounded once. The operand of a weight is rounded if the weight has a rounded copy
// (RoundedWeights); every other matrix gets the precision of the operand that it is multiplied
// with. A backward pass takes its precision from the operands that the forward pass kept. Products
// of bfloat16 are summed in float32. Matrices are [rows, columns]; either each row or each column
// must be contiguous.
#pragma once

#include <ATen/ATen.h>

namespace ql::kernels {

// While an object of this class lives, products with parts of `weights` read a copy that is rounded
// to bfloat16. `weights` is a contiguous float32 tensor on the CPU that begins its storage, and
// must not change. No product may run while the object is made or destroyed.
class RoundedWeights {
 public:
  explicit RoundedWeights(const at::Tensor& weights);
  ~RoundedWeights();
  RoundedWeights(RoundedWeights&&) = delete;

 private:
  c10::StorageImpl* storage_;
};

// Returns the weight as an operand. If the weight is a part of a tensor that has a rounded copy,
// the operand is the same part of the copy. If `scales` are defined, each column of the weight is
// multiplied by its scale before rounding.
at::Tensor weight_factor(const at::Tensor& weight, const at::Tensor& scales = {});

// Returns the matrix as an operand, rounded if it is float32 and `factor` is bfloat16.
at::Tensor to_operand(const at::Tensor& matrix, const at::Tensor& factor);

// Outside of a piece of work (machine/threads.h), a matrix product is divided into pieces for the
// threads. Only the sizes of the matrices decide the pieces, so the bits of the result do not
// depend on the number of threads. For few rows we have a kernel of our own, which reads every
// weight from memory once; a BLAS would copy the weights first.

// While an object of this class lives, products of this thread that set a result (and do not add to
// it) use our own kernel for any number of rows. Then the result of a row does not depend on the
// other rows or on their number, to the last bit: rows computed together are the same as rows
// computed alone. Other code that computes several elements of a batch checks live(), and gives the
// same guarantee.
class BatchInvariant {
 public:
  BatchInvariant();
  ~BatchInvariant();
  BatchInvariant(BatchInvariant&&) = delete;

  static bool live();

 private:
  bool before_;
};

// Returns the matrix product of two operands, plus `bias` [columns] in each row if `bias` is
// defined. If `a` is float32 and `b` is bfloat16, `a` is rounded. Throws std::logic_error if the
// precisions differ in another way.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// Does the same, and rounds the result if `b` is bfloat16.
at::Tensor rounded_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// Sets result = a b, or result = result + a b with `add`.
void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add = false);

// Returns the sum over the first dimension. On processors with AVX-512, the bits of at::sum() would
// depend on the number of threads.
at::Tensor sum_over_first(const at::Tensor& tensor);

}  // namespace ql::kernels
