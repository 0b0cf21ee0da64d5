// Multiplies the matrices of attention, which are too small for a BLAS.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/vector.h"

// Products of pairs of bfloat16 can take the processor's instruction. Clang refuses vectors of
// AVX-512 in a body (kernels/vector.h) where it is defined, not where it is inlined.
#if QL_VECTOR_X86 && !defined(__clang__)
#define QL_NATIVE_PAIRS 1
#else
#define QL_NATIVE_PAIRS 0
#endif

namespace ql::kernels {

// SmallProduct describes C = A B or C = C + A B for attention. The matrix products of attention are
// too small for a BLAS to be fast, or read their matrices in unusual ways. A is read element by
// element and B in panels. A panel is a group of columns of B, with 64 bytes of every row. In a
// packed panel these parts of rows follow one another, so that it is read sequentially whatever the
// width of B.

// A panel has this many columns. Unused columns of the last packed panel are 0.
template <typename Real>
constexpr std::int64_t kPanel = 64 / static_cast<std::int64_t>(sizeof(Real));

template <typename Real>
constexpr std::int64_t padded(std::int64_t columns) {
  return (columns + kPanel<Real> - 1) / kPanel<Real> * kPanel<Real>;
}

// Describes a range of indices for each row. Row r has the indices in [low + slope * r, high +
// slope * r) that are also in [least, most).
struct Band {
  std::int64_t low = 0, high = 0, slope = 0, least = 0, most = 0;
  static Band all(std::int64_t size) { return {0, size, 0, 0, size}; }
};

// A product of bfloat16 reads its matrices in pairs: two elements with consecutive k, the first one
// in the lower half. A pair takes the place of an element of float, so a panel of pairs has 16
// columns, too, and half as many rows.
using Bfloat16Pair = std::uint32_t;

// Number is the type of the elements that a product multiplies: its own, or bfloat16. kDepth says
// how many k are read together, and Packed is the type of the elements of B.
template <typename Number>
constexpr std::int64_t kDepth = std::is_same_v<Number, Bfloat16Bits> ? 2 : 1;
template <typename Number>
using Packed = std::conditional_t<kDepth<Number> == 2, Bfloat16Pair, Number>;

// Points to the panels of a matrix, which are blocks of kPanel columns. Row k of panel p begins at
// data[p * panel + k * row]. in_place() is for a matrix that was not packed. Panels are read in
// full, so the width of this matrix must be a multiple of kPanel.
template <typename Real>
struct Panels {
  const Real* data = nullptr;
  std::int64_t panel = 0, row = kPanel<Real>;
  static Panels packed(const Real* data, std::int64_t rows) {
    return {data, rows * kPanel<Real>, kPanel<Real>};
  }
  static Panels in_place(const Real* data, std::int64_t row) { return {data, kPanel<Real>, row}; }
};

// Describes the product C[i][n] = sum over k of A[i][k] B[k][n], where A[i][k] = a[i * a_row + k *
// a_inner] and C[i][n] = c[i * c_row + n]. With bfloat16, a pair of A with the numbers 2 k and 2 k
// + 1 begins at a[i * a_row + k * a_inner]. If `inner` is odd, the second element of the last pair
// must be 0 in A or in B.
template <typename Real, typename Number = Real>
struct SmallProduct {
  std::int64_t rows = 0, columns = 0, inner = 0;
  const Number* a = nullptr;
  std::int64_t a_row = 0, a_inner = kDepth<Number>;
  Panels<Packed<Number>> b = {};
  Real* c = nullptr;
  std::int64_t c_row = 0;
  bool add = false;     // add to C instead of setting it
  bool padded = false;  // C's rows have room for complete panels
  // For each row i, column_band has the range of n that must be computed, and inner_band the range
  // of k that is summed. Rows are computed in groups, and the rows of a group share one range of n
  // and one range of k, which contain the ranges of each row. Columns of C outside of the shared
  // range may stay unset. A[i][k] must be 0 if k is outside of row i's own range; so must the other
  // element of a pair.
  Band column_band = Band::all(columns), inner_band = Band::all(inner);
};

// At most this many rows of C are computed together. Their sums for one panel (kPanel columns) fill
// twelve vector registers.
template <int kBytes>
constexpr std::int64_t kTileRows = 12 * kBytes / 64;
// This is the largest kTileRows. Rows that are computed together share one range of k
// (SmallProduct). If inner_band moves by one k per row (slope 1 or -1), up to kMostTileRows
// elements outside of a row's own range are therefore read in each row of A.
constexpr std::int64_t kMostTileRows = kTileRows<64>;

struct Range {
  std::int64_t begin = 0, end = 0;
};

// Returns the smallest range that contains the ranges of `count` rows, beginning with row `first`.
QL_VECTOR_BODY Range find_range(const Band& band, std::int64_t first, std::int64_t count) {
  const std::int64_t at_first = band.slope * first, at_last = band.slope * (first + count - 1);
  return {std::max(band.low + std::min(at_first, at_last), band.least),
          std::min(band.high + std::max(at_first, at_last), band.most)};
}

// Computes the rows from `row` to row + kRows - 1 of C, kPanel columns at a time. Their sums stay
// in registers during the loop over k.
template <int kBytes, bool kNative, int kRows, typename Real, typename Number>
QL_VECTOR_BODY void multiply_rows(const SmallProduct<Real, Number>* product, std::int64_t row) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr int kVectors = 64 / kBytes;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const Range columns = find_range(product->column_band, row, kRows);
  const Range elements = find_range(product->inner_band, row, kRows);
  const Range inner = {elements.begin / kDepth<Number>,
                       (elements.end + kDepth<Number> - 1) / kDepth<Number>};
  const std::int64_t a_row = product->a_row, a_inner = product->a_inner;
  const std::int64_t b_row = product->b.row;
  for (std::int64_t panel = columns.begin / kPanel<Real>; panel * kPanel<Real> < columns.end;
       ++panel) {
    Vector sums[kRows][kVectors];
    QL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      QL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[i][v] = Vector{};
    }
    const Number* a = product->a + row * a_row + inner.begin * a_inner;
    const Packed<Number>* b = product->b.data + panel * product->b.panel + inner.begin * b_row;
    for (std::int64_t k = inner.begin; k < inner.end; ++k, a += a_inner, b += b_row) {
      if constexpr (kNative) {
#if QL_NATIVE_PAIRS
        // This is the instruction of AVX512-BF16. It reads and broadcasts a pair of A.
        using Pair = typename Neighbours<Bfloat16Bits, 4>::Vector;
        Vector of_b;
        load(reinterpret_cast<const float*>(b), of_b);
        QL_UNROLL
        for (int i = 0; i < kRows; ++i) {
          asm("vdpbf16ps %2%{1to16%}, %1, %0"
              : "+v"(sums[i][0])
              : "v"(of_b), "m"(*reinterpret_cast<const Pair*>(a + i * a_row)));
        }
#endif
      } else if constexpr (kDepth<Number> == 2) {
        using Pairs = typename Neighbours<Bfloat16Pair, kBytes>::Vector;
        QL_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const Pairs pairs = *reinterpret_cast<const Pairs*>(b + v * kSize);
          const Vector low = reinterpret_cast<Vector>(pairs << 16);
          const Vector high = reinterpret_cast<Vector>(pairs & 0xFFFF0000U);
          QL_UNROLL
          for (int i = 0; i < kRows; ++i) {
            const float first = load_number(a[i * a_row]), second = load_number(a[i * a_row + 1]);
            sums[i][v] += first * low + second * high;
          }
        }
      } else {
        Vector of_b[kVectors];
        QL_UNROLL
        for (int v = 0; v < kVectors; ++v) load(b + v * kSize, of_b[v]);
        QL_UNROLL
        for (int i = 0; i < kRows; ++i) {
          const Real factor = a[i * a_row];
          QL_UNROLL
          for (int v = 0; v < kVectors; ++v) sums[i][v] += factor * of_b[v];
        }
      }
    }
    const std::int64_t first = panel * kPanel<Real>;
    Real* c = product->c + row * product->c_row + first;
    if (!product->padded && product->columns < first + kPanel<Real>) {
      // C has no room for all of the last panel, so the panel goes through a buffer.
      Real rest[kRows * kPanel<Real>];
      QL_UNROLL
      for (int i = 0; i < kRows; ++i) {
        QL_UNROLL
        for (int v = 0; v < kVectors; ++v) store(sums[i][v], &rest[i * kPanel<Real> + v * kSize]);
      }
      for (int i = 0; i < kRows; ++i) {
        for (std::int64_t n = 0; n < product->columns - first; ++n) {
          Real& target = c[i * product->c_row + n];
          target = rest[i * kPanel<Real> + n] + (product->add ? target : Real(0));
        }
      }
    } else if (product->add) {
      QL_UNROLL
      for (int i = 0; i < kRows; ++i) {
        QL_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          Vector before;
          load(c + i * product->c_row + v * kSize, before);
          sums[i][v] += before;
          store(sums[i][v], c + i * product->c_row + v * kSize);
        }
      }
    } else {
      QL_UNROLL
      for (int i = 0; i < kRows; ++i) {
        QL_UNROLL
        for (int v = 0; v < kVectors; ++v) store(sums[i][v], c + i * product->c_row + v * kSize);
      }
    }
  }
}

template <int kBytes, bool kNative, int kRows, typename Product>
QL_VECTOR_BODY void multiply_some_rows(const Product* product, std::int64_t row,
                                       std::int64_t count) {
  if constexpr (kRows > 1) {
    if (count < kRows) {
      multiply_some_rows<kBytes, kNative, kRows - 1>(product, row, count);
      return;
    }
  }
  multiply_rows<kBytes, kNative, kRows>(product, row);
}

template <int kBytes, bool kNative = false, typename Product>
QL_VECTOR_BODY void multiply_body(const Product* product) {
  // Tiles of nearly equal size use the registers better than full tiles and a small last one.
  std::int64_t tiles = (product->rows + kTileRows<kBytes> - 1) / kTileRows<kBytes>;
  for (std::int64_t row = 0; row < product->rows; --tiles) {
    const std::int64_t count = (product->rows - row + tiles - 1) / tiles;
    multiply_some_rows<kBytes, kNative, kTileRows<kBytes>>(product, row, count);
    row += count;
  }
}
QL_REGISTER_KERNEL(multiply)

#if QL_NATIVE_PAIRS
// Computes a product of bfloat16 on a processor with AVX512-BF16.
template <typename Product>
QL_TARGET_AVX512 void multiply_natively(const Product* product) {
  multiply_body<64, true>(product);
}
#endif

// Describes how a matrix [count, width] is packed into panels at `to`. Element n of row k of the
// matrix is rows[k][offset + n] + bias[n]. A null bias counts as 0.
template <typename Real>
struct Packing {
  const Real* const* rows = nullptr;
  std::int64_t count = 0, width = 0;
  Real* to = nullptr;
  std::int64_t offset = 0;
  const Real* bias = nullptr;
};

template <int kBytes, typename Real>
QL_VECTOR_BODY void pack_rows_body(const Packing<Real>* packing) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr int kVectors = 64 / kBytes;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const Real* const* rows = packing->rows;
  const std::int64_t count = packing->count;
  Real* to = packing->to;
  for (std::int64_t panel = 0; panel < packing->width; panel += kPanel<Real>) {
    const std::int64_t at = packing->offset + panel, left = packing->width - panel;
    Vector bias[kVectors];
    QL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      bias[v] = Vector{};
      if (packing->bias != nullptr) {
        load_part(packing->bias + panel + v * kSize, left - v * kSize, bias[v]);
      }
    }
    for (std::int64_t k = 0; k < count; ++k, to += kPanel<Real>) {
      QL_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Vector numbers;
        if (left >= kPanel<Real>) {
          load(rows[k] + at + v * kSize, numbers);
        } else {
          load_part(rows[k] + at + v * kSize, left - v * kSize, numbers);
        }
        numbers += bias[v];
        store(numbers, to + v * kSize);
      }
    }
  }
}
QL_REGISTER_KERNEL(pack_rows)

// Packs the transpose [width, count] of the matrix that `packing` describes. Ignores packing->bias.
template <int kBytes, typename Real>
QL_VECTOR_BODY void pack_columns_body(const Packing<Real>* packing) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const std::int64_t width = packing->width;
  for (std::int64_t column = 0; column < padded<Real>(packing->count); column += kSize) {
    Real* to = packing->to + column / kPanel<Real> * width * kPanel<Real> + column % kPanel<Real>;
    for (std::int64_t k = 0; k < width; k += kSize) {
      Vector square[kSize];
      if (column + kSize <= packing->count && k + kSize <= width) {
        QL_UNROLL
        for (int i = 0; i < kSize; ++i) {
          load(packing->rows[column + i] + packing->offset + k, square[i]);
        }
      } else {
        for (int i = 0; i < kSize; ++i) {
          square[i] = Vector{};
          if (column + i < packing->count) {
            load_part(packing->rows[column + i] + packing->offset + k, width - k, square[i]);
          }
        }
      }
      transpose<Real, kBytes>(&square[0]);
      QL_UNROLL
      for (int i = 0; i < kSize; ++i) {
        if (k + i < width) store(square[i], to + (k + i) * kPanel<Real>);
      }
    }
  }
}
QL_REGISTER_KERNEL(pack_columns)

// Rounds each lane to bfloat16, as store_number() does. The result is in the upper half of each
// lane; the lower half has other bits.
template <int kBytes>
QL_VECTOR_BODY void round_lanes(const typename Register<float, kBytes>::Vector& numbers,
                                typename Neighbours<std::uint32_t, kBytes>::Vector& rounded) {
  using Bits = typename Neighbours<std::uint32_t, kBytes>::Vector;
  const Bits bits = reinterpret_cast<Bits>(numbers);
  const Bits nearest = bits + 0x7FFFU + ((bits >> 16) & 1U);
  rounded = (bits & 0x7FFFFFFFU) > 0x7F800000U ? bits | 0x400000U : nearest;
}

// Puts the lanes of two vectors together as pairs of bfloat16.
template <int kBytes>
QL_VECTOR_BODY void make_pairs(const typename Register<float, kBytes>::Vector& first,
                               const typename Register<float, kBytes>::Vector& second,
                               typename Neighbours<std::uint32_t, kBytes>::Vector& pairs) {
  typename Neighbours<std::uint32_t, kBytes>::Vector low, high;
  round_lanes<kBytes>(first, low);
  round_lanes<kBytes>(second, high);
  pairs = (low >> 16) | (high & 0xFFFF0000U);
}

// Packs the matrix that `packing` describes in pairs of rows at `to`.
template <int kBytes>
QL_VECTOR_BODY void pack_row_pairs_body(const Packing<float>* packing, Bfloat16Pair* to) {
  using Vector = typename Register<float, kBytes>::Vector;
  using Pairs = typename Neighbours<std::uint32_t, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<float, kBytes>::kSize;
  const float* const* rows = packing->rows;
  for (std::int64_t panel = 0; panel < packing->width; panel += kPanel<float>) {
    for (std::int64_t k = 0; k < packing->count; k += 2) {
      for (std::int64_t n = panel; n < panel + kPanel<float>; n += kSize, to += kSize) {
        const std::int64_t left = packing->width - n;
        Vector bias = {}, first, second = {};
        if (packing->bias != nullptr) load_part(packing->bias + n, left, bias);
        load_part(rows[k] + packing->offset + n, left, first);
        first += bias;
        if (k + 1 < packing->count) {
          load_part(rows[k + 1] + packing->offset + n, left, second);
          second += bias;
        }
        Pairs pairs;
        make_pairs<kBytes>(first, second, pairs);
        *reinterpret_cast<Pairs*>(to) = pairs;
      }
    }
  }
}
QL_REGISTER_KERNEL(pack_row_pairs)

}  // namespace ql::kernels
