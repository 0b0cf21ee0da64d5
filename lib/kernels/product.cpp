#include "kernels/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/vector.h"
#include "machine/bfloat16.h"
#include "machine/device.h"
#include "machine/onednn_product.h"
#include "machine/pieces.h"

namespace ql::kernels {
namespace {

// So many numbers are worth waking a thread.
constexpr std::int64_t kGrain = std::int64_t{1} << 15;
// Of the result.
constexpr std::int64_t kRowsOfPiece = 256;

// Rounds to the nearest number of bfloat16, of two equally near ones to the even one.
QL_VECTOR_BODY void round_numbers_body(const float* from, std::int64_t count, std::uint16_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    // Rounding could make an infinity of a number that is none.
    const std::uint32_t no_number = (bits >> 16) | 0x40;
    to[i] = static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? no_number : rounded);
  }
}
QL_VECTOR_KERNEL(round_numbers)

at::Tensor round_matrix(const at::Tensor& matrix) {
  if (matrix.stride(1) != 1 && matrix.stride(0) == 1) return round_matrix(matrix.t()).t();
  if (!matrix.is_contiguous()) return round_matrix(matrix.contiguous());
  at::Tensor rounded = at::empty(matrix.sizes(), matrix.options().dtype(at::kBFloat16));
  const float* from = matrix.data_ptr<float>();
  auto* to = reinterpret_cast<std::uint16_t*>(rounded.data_ptr<at::BFloat16>());
  at::parallel_for(0, matrix.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    round_numbers(from + begin, end - begin, to + begin);
  });
  return rounded;
}

void multiply_floats(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (add) {
    result.addmm_(a, b);
  } else {
    at::mm_out(result, a, b);
  }
}

void multiply_rounded(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (machine::bfloat16_products() == machine::Bfloat16Products::kNative) {
    machine::multiply_by_onednn(result, a, b, add);
  } else {
    multiply_floats(result, a.to(at::kFloat), b.to(at::kFloat), add);
  }
}

void multiply(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (a.scalar_type() != at::kBFloat16) {
    multiply_floats(result, a, b, add);
  } else if (machine::in_piece()) {
    multiply_rounded(result, a, b, add);
  } else {
    machine::for_pieces(a.size(0), kRowsOfPiece, [&](std::int64_t first, std::int64_t count) {
      at::Tensor rows = result.narrow(0, first, count);
      multiply_rounded(rows, a.narrow(0, first, count), b, add);
    });
  }
}

}  // namespace

bool rounds_factors() { return machine::product_precision() == machine::Precision::kBfloat16; }

at::Tensor as_factor(const at::Tensor& matrix) {
  return rounds_factors() && matrix.scalar_type() == at::kFloat ? round_matrix(matrix) : matrix;
}

at::Tensor as_factor_beside(const at::Tensor& matrix, const at::Tensor& factor) {
  return factor.scalar_type() == at::kBFloat16 && matrix.scalar_type() == at::kFloat
             ? round_matrix(matrix)
             : matrix;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != at::kBFloat16) return at::mm(a, b);
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
  multiply(result, a, b, false);
  return result;
}

void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  multiply(result, a, b, false);
}

void add_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  multiply(result, a, b, true);
}

}  // namespace ql::kernels
