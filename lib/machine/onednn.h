// Multiplies matrices on the CPU with oneDNN, mainly matrices of bfloat16.
#pragma once

#include <ATen/ATen.h>

namespace ql::machine {

// Sets result = a b or, with `add`, result = result + a b. Here `a` [rows, inner] and `b` [inner,
// columns] are both bfloat16 or both float32; result [rows, columns] is float32, or bfloat16 if `a`
// is. If `bias` [columns], float32 and contiguous, is defined, it is added to each row of the
// result. Each row of the result must be contiguous. In `a` and in `b`, either each row or each
// column must be contiguous. Call this function inside for_pieces() or for_parts()
// (machine/threads.h), so that one thread computes the product. Throws std::logic_error if this
// processor or this program cannot compute this product.
void multiply_by_onednn(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                        const at::Tensor& bias = {});

}  // namespace ql::machine
