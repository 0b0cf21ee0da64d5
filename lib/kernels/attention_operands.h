// Brings the operands of attention's matrix products into the form that the products take:
// unchanged, or rounded to bfloat16.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/small_product.h"
#include "kernels/vector.h"
#include "machine/device.h"

namespace ql::kernels {

// Rounds the columns from `begin` up to `end` of a matrix; both are multiples of kPanel. Rows are
// `stride` elements apart in both matrices.
template <int kBytes>
QL_VECTOR_BODY void round_columns_body(const float* from, std::int64_t stride, std::int64_t rows,
                                       std::int64_t begin, std::int64_t end, Bfloat16Bits* to) {
  using Bits = typename Neighbours<std::uint32_t, kBytes>::Vector;
  using Narrow = typename Neighbours<Bfloat16Bits, kBytes / 2>::Vector;
  constexpr std::int64_t kSize = Register<float, kBytes>::kSize;
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += stride) {
    for (std::int64_t n = begin; n < end; n += kSize) {
      typename Register<float, kBytes>::Vector numbers;
      load(from + n, numbers);
      Bits rounded;
      round_lanes<kBytes>(numbers, rounded);
      *reinterpret_cast<Narrow*>(to + n) = __builtin_convertvector(rounded >> 16, Narrow);
    }
  }
}
QL_REGISTER_KERNEL(round_columns)

// Does the same for pairs of rows. Pair n of rows r and r + 1 has column n of row r and column n +
// skew of row r + 1, so that pairs with a skew of 1 follow a diagonal. If the number of rows is
// odd, the last row has pairs with 0.
template <int kBytes>
QL_VECTOR_BODY void round_pairs_body(const float* from, std::int64_t stride, std::int64_t rows,
                                     std::int64_t begin, std::int64_t end, std::int64_t skew,
                                     Bfloat16Pair* to) {
  using Pairs = typename Neighbours<Bfloat16Pair, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<float, kBytes>::kSize;
  for (std::int64_t r = 0; r < rows; r += 2, from += 2 * stride, to += stride) {
    for (std::int64_t n = begin; n < end; n += kSize) {
      typename Register<float, kBytes>::Vector first, second = {};
      load(from + n, first);
      if (r + 1 < rows) load(from + stride + n + skew, second);
      Pairs pairs;
      make_pairs<kBytes>(first, second, pairs);
      *reinterpret_cast<Pairs*>(to + n) = pairs;
    }
  }
}
QL_REGISTER_KERNEL(round_pairs)

// Sets to[r * stride + n] = (rows[r][n] + bias[n]) * scale, rounded if Number is bfloat16; a null
// bias counts as 0.
template <typename Real, typename Number>
QL_VECTOR_BODY void scale_rows_body(const Real* const* rows, const Real* bias, Real scale,
                                    std::int64_t count, std::int64_t width, std::int64_t stride,
                                    Number* to) {
  for (std::int64_t r = 0; r < count; ++r, to += stride) {
    const Real* row = rows[r];
    for (std::int64_t n = 0; n < width; ++n) {
      store_number((bias == nullptr ? row[n] : row[n] + bias[n]) * scale, to[n]);
    }
  }
}
QL_VECTOR_KERNEL(scale_rows)

namespace attention {

// Number is the type of the elements that the products multiply: Real, or bfloat16, for which
// matrices are packed in pairs. Sums are Real.
template <typename Real, typename Number>
class Operands {
 public:
  explicit Operands(machine::VectorVersion version) : version_(version) {}

  // Returns how many rows of a panel `inner` rows of a matrix take.
  static std::int64_t depth(std::int64_t inner) {
    return (inner + kDepth<Number> - 1) / kDepth<Number>;
  }

  void multiply(const SmallProduct<Real, Number>& product) const {
#if QL_NATIVE_PAIRS
    if constexpr (kDepth<Number> == 2) {
      if (version_ == machine::VectorVersion::kAvx512 &&
          machine::bfloat16_products() == machine::Bfloat16Products::kNative) {
        multiply_natively(&product);
        return;
      }
    }
#endif
    multiply_in(version_, &product);
  }

  // Packs the matrix that `packing` describes, except for its `to`.
  void pack_rows(Packing<Real> packing, Packed<Number>* to) const {
    if constexpr (kDepth<Number> == 2) {
      pack_row_pairs_in(version_, static_cast<const Packing<float>*>(&packing), to);
    } else {
      packing.to = to;
      pack_rows_in(version_, static_cast<const Packing<Real>*>(&packing));
    }
  }

  // Packs the transpose of the matrix that `packing` describes, except for its `to`. There must be
  // no bias.
  void pack_columns(Packing<Real> packing, Packed<Number>* to) {
    if constexpr (kDepth<Number> == 2) {
      // Pairs of a row's elements are transposed as if they were elements of float.
      const std::int64_t pairs = depth(packing.width);
      rounded_.assign(static_cast<std::size_t>(packing.count * pairs), 0);
      rows_.clear();
      pair_rows_.clear();
      for (std::int64_t k = 0; k < packing.count; ++k) {
        rows_.push_back(packing.rows[k] + packing.offset);
        pair_rows_.push_back(reinterpret_cast<const float*>(rounded_.data() + k * pairs));
      }
      scale_rows_in(version_, static_cast<const float* const*>(rows_.data()),
                    static_cast<const float*>(nullptr), 1.0F, packing.count, packing.width,
                    2 * pairs, reinterpret_cast<Bfloat16Bits*>(rounded_.data()));
      const Packing<float> of_pairs{pair_rows_.data(), packing.count, pairs,
                                    reinterpret_cast<float*>(to)};
      pack_columns_in(version_, &of_pairs);
    } else {
      packing.to = to;
      pack_columns_in(version_, static_cast<const Packing<Real>*>(&packing));
    }
  }

 private:
  machine::VectorVersion version_;
  std::vector<Bfloat16Pair> rounded_;
  std::vector<const float*> rows_, pair_rows_;
};

}  // namespace attention
}  // namespace ql::kernels
