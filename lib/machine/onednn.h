// Multiplies matrices, above all of bfloat16, on the CPU by oneDNN.
#pragma once

#include <ATen/ATen.h>

namespace ql::machine {

// Sets result = a b, or result = result + a b with `add`: a [rows, inner] and b [inner, columns]
// are both bfloat16 or both float32, result [rows, columns] is float32. If `bias` [columns],
// float32 and contiguous, is defined, it is added to each row of the result. The rows of the
// result, and the rows or the columns of the operands, must be contiguous. One thread computes the
// product; call this function in a piece (machine/threads.h). Throws std::logic_error if this
// processor or this program cannot compute this product.
void multiply_by_onednn(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                        const at::Tensor& bias = {});

}  // namespace ql::machine
