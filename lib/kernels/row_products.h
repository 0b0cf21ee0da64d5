// Computes products of few rows with a layer's weights, which are read once, where they lie. A BLAS
// first copies them into an order of its own, which takes longer than the product of few rows.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/bfloat16_number.h"
#include "kernels/vector.h"
#include "kernels/vector_type.h"

namespace ql::kernels {

// result[row][column] = sum over k of states[row][k] weights[column][k] + bias[column], for the
// columns from `begin` to `end`. Rows follow one another without gaps, those of the result after
// `pitch` numbers. The weights are Real or bfloat16.
template <typename Real, typename Number>
struct RowProducts {
  std::int64_t rows = 0, width = 0, columns = 0, begin = 0, end = 0, pitch = 0;
  const Real* states = nullptr;
  const Number* weights = nullptr;
  const Real* bias = nullptr;
  Real* result = nullptr;
};

// Adds up the lanes of as many vectors as a vector has lanes: lane i of the first becomes
// sum_of_lanes() of vector i, to the last bit. A step adds the two halves of each sum, of two
// vectors at once, until every sum is one lane.
template <int kBytes, typename Real, int kStep = Register<Real, kBytes>::kSize / 2>
QL_VECTOR_BODY void add_up_lanes(typename Register<Real, kBytes>::Vector* sums) {
  using Shape = Register<Real, kBytes>;
  if constexpr (kStep > 0) {
    QL_UNROLL
    for (int i = 0; i < kStep; ++i) {
      exchange<kStep, typename Shape::Integers>(sums[i], sums[i + kStep],
                                                std::make_index_sequence<Shape::kSize>());
      sums[i] += sums[i + kStep];
    }
    add_up_lanes<kBytes, Real, kStep / 2>(sums);
  }
}

// totals[i] = sum_of_lanes(sums[i])
template <int kBytes, int kSums, typename Real>
QL_VECTOR_BODY void find_totals(typename Register<Real, kBytes>::Vector* sums, Real* totals) {
  constexpr int kSize = Register<Real, kBytes>::kSize;
  if constexpr (kSums % kSize == 0) {
    for (int first = 0; first < kSums; first += kSize) {
      add_up_lanes<kBytes, Real>(sums + first);
      store(sums[first], totals + first);
    }
  } else {
    for (int i = 0; i < kSums; ++i) totals[i] = sum_of_lanes<Real>(sums[i]);
  }
}

// Computes a block of rows and columns. Every number has a sum of its own, a vector whose lanes
// are added up at the end, so it does not matter which others are computed with it.
template <int kBytes, int kBlockRows, int kBlockColumns, typename Real, typename Number>
QL_VECTOR_BODY void multiply_block(const RowProducts<Real, Number>* product, std::int64_t row,
                                   std::int64_t column) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const std::int64_t width = product->width;
  const Real* states = product->states + row * width;
  const Number* weights = product->weights + column * width;
  Vector sums[kBlockRows][kBlockColumns];
  QL_UNROLL
  for (int i = 0; i < kBlockRows; ++i) {
    QL_UNROLL
    for (int j = 0; j < kBlockColumns; ++j) sums[i][j] = Vector{};
  }
  std::int64_t k = 0;
  for (; k + kSize <= width; k += kSize) {
    Vector of_states[kBlockRows];
    QL_UNROLL
    for (int i = 0; i < kBlockRows; ++i) load(states + i * width + k, of_states[i]);
    QL_UNROLL
    for (int j = 0; j < kBlockColumns; ++j) {
      Vector of_weights;
      load(weights + j * width + k, of_weights);
      // The next columns come while these are multiplied.
      __builtin_prefetch(weights + (j + kBlockColumns) * width + k);
      QL_UNROLL
      for (int i = 0; i < kBlockRows; ++i) sums[i][j] += of_states[i] * of_weights;
    }
  }
  if (k < width) {
    QL_UNROLL
    for (int i = 0; i < kBlockRows; ++i) {
      Vector of_states;
      load_part(states + i * width + k, width - k, of_states);
      QL_UNROLL
      for (int j = 0; j < kBlockColumns; ++j) {
        Vector of_weights;
        load_part(weights + j * width + k, width - k, of_weights);
        sums[i][j] += of_states * of_weights;
      }
    }
  }
  Real totals[kBlockRows * kBlockColumns];
  find_totals<kBytes, kBlockRows * kBlockColumns>(&sums[0][0], &totals[0]);
  for (int i = 0; i < kBlockRows; ++i) {
    Real* result = product->result + (row + i) * product->pitch + column;
    for (int j = 0; j < kBlockColumns; ++j) {
      result[j] = totals[i * kBlockColumns + j] +
                  (product->bias == nullptr ? Real(0) : product->bias[column + j]);
    }
  }
}

// Blocks of so many columns leave registers for the states: AVX-512 has twice as many.
template <int kBytes>
constexpr int kColumns = kBytes == 64 ? 4 : 2;
constexpr int kRows = 4;

template <int kBytes, typename Real, typename Number>
QL_VECTOR_BODY void multiply_rows_apart_body(const RowProducts<Real, Number>* product) {
  const std::int64_t whole_rows = product->rows / kRows * kRows;
  std::int64_t column = product->begin;
  for (; column + kColumns<kBytes> <= product->end; column += kColumns<kBytes>) {
    std::int64_t row = 0;
    for (; row < whole_rows; row += kRows) {
      multiply_block<kBytes, kRows, kColumns<kBytes>>(product, row, column);
    }
    for (; row < product->rows; ++row) {
      multiply_block<kBytes, 1, kColumns<kBytes>>(product, row, column);
    }
  }
  for (; column < product->end; ++column) {
    for (std::int64_t row = 0; row < product->rows; ++row) {
      multiply_block<kBytes, 1, 1>(product, row, column);
    }
  }
}
QL_REGISTER_KERNEL(multiply_rows_apart)

}  // namespace ql::kernels
