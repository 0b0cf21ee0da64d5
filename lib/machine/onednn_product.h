// Multiplies matrices by oneDNN.
#pragma once

#include <ATen/ATen.h>

namespace ql::machine {

// result = a b, or result + a b with `add`: a [rows, inner] and b [inner, columns] are both
// bfloat16 or both float32, result [rows, columns] is float32. Each row of the product gets `bias`
// [columns], float32 and contiguous, as well, if that is defined. Rows of the result, and rows or
// columns of the factors, lie side by side. One thread computes it; call it in a piece
// (machine/pieces.h). Throws std::logic_error where this processor or this program has no such
// product.
void multiply_by_onednn(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                        const at::Tensor& bias = {});

}  // namespace ql::machine
