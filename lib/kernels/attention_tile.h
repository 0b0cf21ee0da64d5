// Computes the softmax of attention and its gradient over the rows of a tile (a block of queries by
// a block of keys), between the matrix products of the attention kernel.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/small_product.h"
#include "kernels/vector.h"

namespace ql::kernels {

// A softmax over all keys of a query is computed one tile after the other, without a row of all its
// scores (Milakov and Gimelshein: "Online normalizer calculation for softmax", 2018). Each query
// has the maximum of its scores so far, and sums of exponentials below this maximum. When a tile
// has a larger score, the sums so far are scaled.

// Points to the rows of a tile, one for each of `rows` consecutive queries, and to what belongs to
// these queries. Column n is the block's key n. The kernels read and write blocks of kPanel
// columns, so a row of `scores` and `gradients` has room for a complete last block, and then for
// kTileMargin elements. Only the mask `kept` needs no room between rows.
template <typename Real>
struct TileRows {
  std::int64_t rows = 0;
  Band seen = {};             // for each row, the columns whose keys its query sees; may be empty
  std::int64_t stride = 0;    // row stride of `scores` and `gradients`
  Real* scores = nullptr;     // in: the scores; out: the weights of the values
  Real* gradients = nullptr;  // backward, in: of the weights; out: of the scores before the scale
  // Dropout's mask, 1 for each kept probability, or null. Row r has the mask's row
  // (r + first_kept) / rows_per_kept. Kept probabilities are multiplied by `factor`.
  const std::uint8_t* kept = nullptr;
  std::int64_t kept_stride = 0, first_kept = 0, rows_per_kept = 1;
  Real factor = 1;
  // These have an element for each row: the maximum of the scores, and the sum of the exponentials;
  // after the last tile, its inverse.
  Real *maxima = nullptr, *totals = nullptr;
  bool first = true, last = true;  // whether the tile is the first or the last one of its queries
  // Probabilities before dropout, or null: forward, an output of a tile that is first and last;
  // backward, an input in the place of the scores.
  Real* probabilities = nullptr;
  std::int64_t probability_stride = 0;
  // Forward: the sums of values so far [rows, width], which are scaled with `totals`.
  Real* sums = nullptr;
  std::int64_t width = 0;
  // Backward: for each row, the sum over all keys of (weight * gradient). If null, the tile has all
  // keys.
  const Real* means = nullptr;
  Real scale = 1;  // backward: of the scores
};

// A matrix product along the diagonals of a tile also reads, or adds to, elements outside the
// columns of a row: up to kMostTileRows of them, because rows that are computed together are
// shifted against each other, and the rest of a panel. Those that are read must be 0. So
// kTileMargin elements lie between the columns of two rows. They also keep the rows from all
// mapping to the same set of a cache.
inline constexpr std::int64_t kTileMargin = 32;
static_assert(kTileMargin >= kMostTileRows + kPanel<float> &&
              kTileMargin >= 2 * padded<float>(kMostTileRows));

// Sets the elements of a row from `begin` up to `end` to 0; their number is a multiple of kPanel.
template <int kBytes, typename Real>
QL_VECTOR_BODY void clear_panels(Real* row, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const typename Register<Real, kBytes>::Vector zero = {};
  for (std::int64_t j = begin; j < end; j += kSize) store(zero, row + j);
}

// Returns a range of columns that contains every key seen by the rows from `first` to first + count
// - 1. Both ends are multiples of kPanel. The range of a single row may be empty.
template <typename Real>
QL_VECTOR_BODY Range find_panels(const Band& seen, std::int64_t first, std::int64_t count) {
  const Range keys = find_range(seen, first, count);
  const std::int64_t begin = keys.begin / kPanel<Real> * kPanel<Real>;
  return {begin, std::max(begin, padded<Real>(keys.end))};
}

template <typename Real>
QL_VECTOR_BODY const std::uint8_t* kept_row(const TileRows<Real>* in, std::int64_t row) {
  return in->kept == nullptr
             ? nullptr
             : in->kept + (row + in->first_kept) / in->rows_per_kept * in->kept_stride;
}

// Sets a lane to 0 where the mask has 0. Its other elements are 1.
template <int kBytes, typename Real>
QL_VECTOR_BODY void drop(const std::uint8_t* kept, typename Register<Real, kBytes>::Vector& x) {
  using Integers = typename Register<Real, kBytes>::Integers;
  using Bytes = typename Neighbours<std::uint8_t, Register<Real, kBytes>::kSize>::Vector;
  const Integers keep = -__builtin_convertvector(*reinterpret_cast<const Bytes*>(kept), Integers);
  x = reinterpret_cast<typename Register<Real, kBytes>::Vector>(reinterpret_cast<Integers>(x) &
                                                                keep);
}

// Replaces the lanes of keys outside of `keys` by `outside`.
template <int kBytes, typename Real>
QL_VECTOR_BODY void hide_scores(const Range& keys, std::int64_t column,
                                const typename Register<Real, kBytes>::Vector& outside,
                                typename Register<Real, kBytes>::Vector& scores) {
  using Vector = typename Register<Real, kBytes>::Vector;
  using Integers = typename Register<Real, kBytes>::Integers;
  if (column < keys.begin || column + Register<Real, kBytes>::kSize > keys.end) {
    Integers own;
    mask_lanes(keys.begin - column, keys.end - column, own);
    scores = reinterpret_cast<Vector>((reinterpret_cast<Integers>(scores) & own) |
                                      (reinterpret_cast<Integers>(outside) & ~own));
  }
}

// Replaces in->scores by the weights that the query gives to the values. With the query's maximum m
// so far, and dropout's factors f (in->factor where the mask has 1, else 0):
//
//   scores_rn = f_rn e^(scores_rn - m_r)
//
// A tile that is first and last divides the weights by the total; otherwise the caller divides the
// sums. A key that the query does not see gets the weight 0. Updates maxima, totals (those before
// dropout) and sums.
template <int kBytes, typename Real>
QL_VECTOR_BODY void softmax_tile_body(const TileRows<Real>* in) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  constexpr Real kLowest = std::numeric_limits<Real>::lowest();
  const Vector lowest = Vector{} + kLowest;
  const Range all = find_panels<Real>(in->seen, 0, in->rows);
  const bool whole = in->first && in->last;
  for (std::int64_t r = 0; r < in->rows; ++r) {
    const Range keys = find_range(in->seen, r, 1), panels = find_panels<Real>(in->seen, r, 1);
    Real* scores = in->scores + r * in->stride;
    const Real before = in->first ? kLowest : in->maxima[r];
    const Real total = in->first ? Real(0) : in->totals[r];
    const std::uint8_t* kept = kept_row(in, r);
    Vector largest = lowest;
    for (std::int64_t n = panels.begin; n < panels.end; n += kSize) {
      Vector score;
      load(scores + n, score);
      hide_scores<kBytes, Real>(keys, n, lowest, score);
      store(score, scores + n);
      largest = largest < score ? score : largest;
    }
    const Real of_tile = largest_lane<Real>(largest);
    const Real maximum = before < of_tile ? of_tile : before;
    Vector exponentials = {};
    for (std::int64_t n = panels.begin; n < panels.end; n += kSize) {
      Vector weight;
      load(scores + n, weight);
      weight -= maximum;
      exponentiate<kBytes>(weight);
      hide_scores<kBytes, Real>(keys, n, Vector{}, weight);
      exponentials += weight;
      if (!whole) {
        weight *= in->factor;
        if (kept != nullptr) drop<kBytes, Real>(kept + n, weight);
      }
      store(weight, scores + n);
    }
    const Real share = exponential(before - maximum);
    const Real sum = total * share + sum_of_lanes<Real>(exponentials);
    in->maxima[r] = maximum;
    in->totals[r] = in->last ? 1 / sum : sum;
    if (whole) {
      const Real inverse = 1 / sum;
      for (std::int64_t n = panels.begin; n < panels.end; n += kSize) {
        Vector weight;
        load(scores + n, weight);
        weight *= inverse;
        if (in->probabilities != nullptr) {
          store(weight, in->probabilities + r * in->probability_stride + n);
        }
        weight *= in->factor;
        if (kept != nullptr) drop<kBytes, Real>(kept + n, weight);
        store(weight, scores + n);
      }
    } else if (before != maximum && !in->first) {
      Real* sums = in->sums + r * in->width;
      for (std::int64_t n = 0; n < in->width; ++n) sums[n] *= share;
    }
    clear_panels<kBytes>(scores, all.begin, panels.begin);
    clear_panels<kBytes>(scores, panels.end, all.end);
  }
}
QL_REGISTER_KERNEL(softmax_tile)

// Replaces `scores` by the weights of the values, and `gradients` by the gradients with respect to
// the scores before the scale is applied. With the maxima m and the inverse totals t of the forward
// pass, the gradients g of the weights, and dropout's factors f:
//
//   p_rn         = t_r e^(scores_rn - m_r)
//   scores_rn    = f_rn p_rn
//   gradients_rn = scale p_rn (f_rn g_rn - mean_r)
template <int kBytes, typename Real>
QL_VECTOR_BODY void softmax_tile_gradient_body(const TileRows<Real>* in) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  constexpr std::int64_t kMargin = padded<Real>(kMostTileRows);
  const Range all = find_panels<Real>(in->seen, 0, in->rows);
  for (std::int64_t r = 0; r < in->rows; ++r) {
    const Range keys = find_range(in->seen, r, 1), panels = find_panels<Real>(in->seen, r, 1);
    Real* weights = in->scores + r * in->stride;
    Real* gradients = in->gradients + r * in->stride;
    const std::uint8_t* kept = kept_row(in, r);
    const Real* probabilities = in->probabilities;
    if (probabilities != nullptr) {
      probabilities += r * in->probability_stride;
    } else {
      const Real maximum = in->maxima[r], inverse = in->totals[r];
      for (std::int64_t n = panels.begin; n < panels.end; n += kSize) {
        Vector probability;
        load(weights + n, probability);
        hide_scores<kBytes, Real>(keys, n, Vector{} + maximum, probability);
        probability -= maximum;
        exponentiate<kBytes>(probability);
        probability *= inverse;
        hide_scores<kBytes, Real>(keys, n, Vector{}, probability);
        store(probability, weights + n);
      }
      probabilities = weights;
    }
    Real mean = 0;
    if (in->means != nullptr) {
      mean = in->means[r];
    } else {
      Vector sums = {};
      for (std::int64_t n = panels.begin; n < panels.end; n += kSize) {
        Vector gradient, probability;
        load(gradients + n, gradient);
        load(probabilities + n, probability);
        if (kept != nullptr) drop<kBytes, Real>(kept + n, gradient);
        sums += probability * gradient;
      }
      mean = in->factor * sum_of_lanes<Real>(sums);
    }
    for (std::int64_t n = panels.begin; n < panels.end; n += kSize) {
      Vector gradient, probability;
      load(gradients + n, gradient);
      load(probabilities + n, probability);
      Vector weight = probability * in->factor;
      gradient *= in->factor;
      if (kept != nullptr) {
        drop<kBytes, Real>(kept + n, weight);
        drop<kBytes, Real>(kept + n, gradient);
      }
      gradient = probability * (gradient - mean) * in->scale;
      store(weight, weights + n);
      store(gradient, gradients + n);
    }
    clear_panels<kBytes>(weights, all.begin, panels.begin);
    clear_panels<kBytes>(weights, panels.end, all.end);
    clear_panels<kBytes>(gradients, all.begin - kMargin, panels.begin);
    clear_panels<kBytes>(gradients, panels.end, all.end + kMargin);
  }
}
QL_REGISTER_KERNEL(softmax_tile_gradient)

// Sets to[r] to the dot product of row r of `a` and row r of `b`. Number is Real or bfloat16.
template <typename Number, typename Real>
QL_VECTOR_BODY void multiply_and_add_rows_body(const Number* a, std::int64_t a_row, const Real* b,
                                               std::int64_t b_row, std::int64_t count,
                                               std::int64_t width, Real* to) {
  for (std::int64_t r = 0; r < count; ++r, a += a_row, b += b_row) {
    Real lanes[kLanes] = {};
    std::int64_t n = 0;
    for (; n + kLanes <= width; n += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += load_number(a[n + lane]) * b[n + lane];
      }
    }
    for (; n < width; ++n) lanes[0] += load_number(a[n]) * b[n];
    to[r] = sum_of(lanes);
  }
}
QL_VECTOR_KERNEL(multiply_and_add_rows)

// Sets to[n] = content[n] + position[n]; a null position counts as 0.
template <typename Real>
QL_VECTOR_BODY void join_rows_body(const Real* content, const Real* position, std::int64_t width,
                                   Real* to) {
  for (std::int64_t n = 0; n < width; ++n) {
    to[n] = position == nullptr ? content[n] : content[n] + position[n];
  }
}
QL_VECTOR_KERNEL(join_rows)

}  // namespace ql::kernels
