// Computes softmax and dropout of rows of scores, and their gradients: the steps of attention
// between its products.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/small_product.h"
#include "kernels/vector_type.h"

namespace ql::kernels {

// The rows of consecutive queries. Rows of all matrices have room for whole panels. Those of
// `factors` need not begin at a panel, and the numbers behind their last key do not matter.
template <typename Real>
struct ScoreRows {
  std::int64_t rows = 0;
  Band seen = {};                // the keys that query r of these sees; at least one
  std::int64_t stride = 0;       // of `scores` and `weights`
  Real* scores = nullptr;        // forward: content scores; backward: gradients of probabilities
  Real* weights = nullptr;       // backward: becomes the probabilities after dropout
  const Real* by_row = nullptr;  // forward: position scores or null; of key j at [shift - r + j]
  std::int64_t by_row_stride = 0, shift = 0;
  const Real* factors = nullptr;  // of dropout, or null
  std::int64_t factor_stride = 0;
  Real* probabilities = nullptr;  // before dropout; null in forward: not kept
  std::int64_t probability_stride = 0;
  Real scale = 1;  // backward: of the scores
};

template <typename Real>
constexpr std::int64_t panel_begin(std::int64_t column) {
  return column / kPanel<Real> * kPanel<Real>;
}

// Clears the columns of a row from `begin` up to `end`, both ends of panels.
template <int kBytes, typename Real>
QL_VECTOR_BODY void clear_panels(Real* row, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const typename Register<Real, kBytes>::Vector zero = {};
  for (std::int64_t j = begin; j < end; j += kSize) store(zero, row + j);
}

// Finds the panels with keys that some of the rows see.
template <typename Real>
QL_VECTOR_BODY void find_panels(const Band& seen, std::int64_t first, std::int64_t count,
                                Range& panels) {
  find_range(seen, first, count, panels);
  panels.begin = panel_begin<Real>(panels.begin);
  panels.end = padded<Real>(panels.end);
}

// Scores become the weights of the values, 0 where no key is seen, in all panels of the rows. For
// the keys j that row r sees, with the scores s and dropout's factors f:
//
//   s_rj           = scores_rj + by_row_r[shift - r + j]
//   probability_rj = e^(s_rj - max_n s_rn) / sum_n e^(s_rn - max_n s_rn)
//   scores_rj      = f_rj probability_rj
template <int kBytes, typename Real>
QL_VECTOR_BODY void softmax_rows_body(const ScoreRows<Real>* in) {
  using Vector = typename Register<Real, kBytes>::Vector;
  using Integers = typename Register<Real, kBytes>::Integers;
  using Integer = typename Register<Real, kBytes>::Integer;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const Vector lowest = Vector{} + std::numeric_limits<Real>::lowest();
  Range all;
  find_panels<Real>(in->seen, 0, in->rows, all);
  Integers lanes;
  count_up(0, lanes);
  for (std::int64_t r = 0; r < in->rows; ++r) {
    Range keys, panels;
    find_range(in->seen, r, 1, keys);
    find_panels<Real>(in->seen, r, 1, panels);
    Real* scores = in->scores + r * in->stride;
    const Real* by_row =
        in->by_row == nullptr ? nullptr : in->by_row + r * in->by_row_stride + in->shift - r;
    Vector largest = lowest;
    for (std::int64_t j = panels.begin; j < panels.end; j += kSize) {
      Vector score;
      load(scores + j, score);
      if (by_row != nullptr) {
        Vector position;
        load(by_row + j, position);
        score += position;
      }
      const Integers key = lanes + static_cast<Integer>(j);
      const Integers own =
          (key >= static_cast<Integer>(keys.begin)) & (key < static_cast<Integer>(keys.end));
      score = own ? score : lowest;
      store(score, scores + j);
      largest = largest < score ? score : largest;
    }
    const Real maximum = largest_lane<Real>(largest);
    Vector sums = {};
    for (std::int64_t j = panels.begin; j < panels.end; j += kSize) {
      Vector score;
      load(scores + j, score);
      score -= maximum;
      exponentiate<kBytes>(score);
      const Integers key = lanes + static_cast<Integer>(j);
      const Integers own =
          (key >= static_cast<Integer>(keys.begin)) & (key < static_cast<Integer>(keys.end));
      score = own ? score : Vector{};
      store(score, scores + j);
      sums += score;
    }
    const Real factor = 1 / sum_of_lanes<Real>(sums);
    for (std::int64_t j = panels.begin; j < panels.end; j += kSize) {
      Vector probability;
      load(scores + j, probability);
      probability *= factor;
      if (in->probabilities != nullptr) {
        store(probability, in->probabilities + r * in->probability_stride + j);
      }
      if (in->factors != nullptr) {
        Vector kept;
        load(in->factors + r * in->factor_stride + j, kept);
        probability *= kept;
      }
      store(probability, scores + j);
    }
    clear_panels<kBytes>(scores, all.begin, panels.begin);
    clear_panels<kBytes>(scores, panels.end, all.end);
  }
}
QL_REGISTER_KERNEL(softmax_rows)

// Gradients g by the probabilities after dropout become those by the scores, with the scale in
// them. With the probabilities p and dropout's factors f:
//
//   weights_rj = f_rj p_rj
//   scores_rj  = scale p_rj (f_rj g_rj - sum_n p_rn f_rn g_rn)
template <int kBytes, typename Real>
QL_VECTOR_BODY void softmax_gradient_rows_body(const ScoreRows<Real>* in) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  Range all;
  find_panels<Real>(in->seen, 0, in->rows, all);
  for (std::int64_t r = 0; r < in->rows; ++r) {
    Range panels;
    find_panels<Real>(in->seen, r, 1, panels);
    Real* gradients = in->scores + r * in->stride;
    Real* weights = in->weights + r * in->stride;
    const Real* probabilities = in->probabilities + r * in->probability_stride;
    Vector sums = {};
    for (std::int64_t j = panels.begin; j < panels.end; j += kSize) {
      Vector gradient, probability;
      load(gradients + j, gradient);
      load(probabilities + j, probability);
      Vector weight = probability;
      if (in->factors != nullptr) {
        Vector kept;
        load(in->factors + r * in->factor_stride + j, kept);
        gradient *= kept;
        weight *= kept;
      }
      sums += probability * gradient;
      store(gradient, gradients + j);
      store(weight, weights + j);
    }
    const Real mean = sum_of_lanes<Real>(sums);
    for (std::int64_t j = panels.begin; j < panels.end; j += kSize) {
      Vector gradient, probability;
      load(gradients + j, gradient);
      load(probabilities + j, probability);
      gradient = probability * (gradient - mean) * in->scale;
      store(gradient, gradients + j);
    }
    clear_panels<kBytes>(gradients, all.begin, panels.begin);
    clear_panels<kBytes>(gradients, panels.end, all.end);
    clear_panels<kBytes>(weights, all.begin, panels.begin);
    clear_panels<kBytes>(weights, panels.end, all.end);
  }
}
QL_REGISTER_KERNEL(softmax_gradient_rows)

// to[r * width + n] = (rows[r][n] + bias[n]) * scale; a null bias is 0.
template <typename Real>
QL_VECTOR_BODY void scale_rows_body(const Real* const* rows, const Real* bias, Real scale,
                                    std::int64_t count, std::int64_t width, Real* to) {
  for (std::int64_t r = 0; r < count; ++r, to += width) {
    const Real* row = rows[r];
    for (std::int64_t n = 0; n < width; ++n) {
      to[n] = (bias == nullptr ? row[n] : row[n] + bias[n]) * scale;
    }
  }
}
QL_VECTOR_KERNEL(scale_rows)

// sums[n] += rows[0][n] + rows[1][n] + ..., for `count` rows.
template <typename Real>
QL_VECTOR_BODY void sum_rows_body(const Real* rows, std::int64_t stride, std::int64_t count,
                                  std::int64_t width, Real* sums) {
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t n = 0; n < width; ++n) sums[n] += rows[r * stride + n];
  }
}
QL_VECTOR_KERNEL(sum_rows)

// to[n] = content[n] + position[n]; a null position is 0.
template <typename Real>
QL_VECTOR_BODY void join_rows_body(const Real* content, const Real* position, std::int64_t width,
                                   Real* to) {
  for (std::int64_t n = 0; n < width; ++n) {
    to[n] = position == nullptr ? content[n] : content[n] + position[n];
  }
}
QL_VECTOR_KERNEL(join_rows)

}  // namespace ql::kernels
