// Multiplies rows of states, usually few, with a layer's weights.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/vector.h"

namespace ql::kernels {

// Every weight is read in place, and comes from memory only once. A BLAS first copies the weights
// into its own order, which takes longer than the multiplication of few rows.

// Describes result[row][column] = bias[column] + sum over k of states[row][k] weights[column][k],
// for the columns from `begin` up to `end`. A null bias counts as 0. The rows of states and weights
// are contiguous; the rows of the result are `pitch` elements apart. The weights are Real or
// bfloat16.
template <typename Real, typename Number>
struct RowProducts {
  std::int64_t rows = 0, width = 0, columns = 0, begin = 0, end = 0, pitch = 0;
  const Real* states = nullptr;
  const Number* weights = nullptr;
  const Real* bias = nullptr;
  Real* result = nullptr;
};

// Adds up the lanes of each of kSize vectors, where kSize is the number of lanes. Lane i of the
// first vector becomes sum_of_lanes() of vector i, to the last bit. Each step adds one half of a
// vector's lanes to the other half, and puts the results of two vectors into one vector. After the
// last step, the first vector holds all sums.
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

// Sets totals[i] = sum_of_lanes(sums[i]).
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

// Computes a block of rows and columns of the result. Every element has its own sum, a vector whose
// lanes are added up at the end. So an element does not depend on the elements that are computed
// together with it.
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
      // Prefetches the weights of the next block of columns.
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

// Blocks of this many columns leave registers for the states; AVX-512 has twice as many registers
// as AVX2.
template <int kBytes>
constexpr int kColumns = kBytes == 64 ? 4 : 2;
constexpr int kRows = 4;

template <int kBytes, typename Real, typename Number>
QL_VECTOR_BODY void multiply_batch_invariant_body(const RowProducts<Real, Number>* product) {
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
QL_REGISTER_KERNEL(multiply_batch_invariant)

}  // namespace ql::kernels
