// Computes the forward pass of the attention kernel.

#include <algorithm>

#include "kernels/attention_problem.h"

namespace ql::kernels {
namespace attention {
namespace {

// Computes the attention of one stream and head, a block of queries at a time. The letters u, v, r
// and s are explained in kernels/attention.h, and c = 1 / sqrt(d_head). Query i has the window
// index m + i. Dropout's factor f_ij is 0 for a dropped probability, and 1 without dropout. Then,
// for the keys j that query i sees,
//
//   score_ij = c (q_i + u) . k_j + c (q_i + v) . r_(m+i-j) + s_(m+i-j)
//   p_ij     = e^(score_ij) / sum_n e^(score_in)
//   sum_i    = sum_j f_ij p_ij value_j
//
// The scale c is applied to the queries, because a query usually has fewer elements than a row of
// scores. The second term comes from one matrix product of the queries with the position table.
// Each row of this product has the scores of a query by distance, and softmax_rows() shifts them to
// the keys. The scores s are packed as one such row, which all queries share.
template <typename Real>
class Forward {
 public:
  Forward(const View<Real>& view, const PositionPanels<Real>& positions, Real* probabilities,
          Real* sums, machine::VectorVersion version)
      : view_(view),
        position_columns_(positions),
        probabilities_(probabilities),
        sums_(sums),
        version_(version) {}

  void run(std::int64_t stream, std::int64_t head) {
    for (std::int64_t first = 0; first < std::min(view_.segment, view_.dilation(head)); ++first) {
      const AttentionProblem<Real> problem{view_, stream, head, first};
      find_rows(problem, scratch_);
      const Packing<Real> keys{scratch_.key_rows.data(), problem.keys, view_.width, key_columns_};
      pack_columns_in(version_, &keys);
      const Panels<Real> values = make_panels(problem, scratch_, view_.row(), version_, values_);
      for (std::int64_t begin = 0; begin < problem.queries; begin += view_.block()) {
        run_block(problem, begin, std::min(view_.block(), problem.queries - begin), values);
      }
    }
  }

 private:
  void run_block(const AttentionProblem<Real>& problem, std::int64_t begin, std::int64_t count,
                 const Panels<Real>& values) {
    const Real* const* queries = scratch_.query_rows.data() + begin;
    ScoreRows<Real> rows;
    rows.rows = count;
    rows.seen = problem.seen(begin);
    rows.stride = scratch_.score_stride;
    rows.scores = scores_;
    scale_rows_in(version_, queries, bias_of(view_.content_bias, problem), view_.scale, count,
                  view_.width, content_);
    multiply_scores(content_, count, key_columns_, problem.keys, rows.seen, scores_);
    if (view_.positions != nullptr) {
      scale_rows_in(version_, queries, bias_of(view_.position_bias, problem), view_.scale, count,
                    view_.width, position_);
      multiply_scores(position_, count, position_columns_.of(problem.head), problem.distances,
                      problem.positions_seen(begin), by_row_);
      rows.by_row = by_row_;
      rows.by_row_stride = scratch_.score_stride;
    } else if (view_.distance_scores != nullptr) {
      rows.by_row = position_columns_.of(problem.head);
    }
    rows.shift = problem.shift() - begin;
    if (view_.kept != nullptr) {
      rows.factor_stride = find_factors(problem, begin, count, version_, factors_);
      rows.factors = factors_;
    }
    if (probabilities_ != nullptr) {
      rows.probabilities = probabilities_ + problem.kept_at(begin);
      rows.probability_stride = view_.kept_row() * problem.step;
    }
    softmax_rows_in(version_, &rows);

    SmallProduct<Real> product{count, view_.width, problem.keys};
    product.a = scores_;
    product.a_row = scratch_.score_stride;
    product.b = values;
    product.c = sums_ + problem.query_at(begin);
    product.c_row = problem.step * view_.row();
    product.inner_band = rows.seen;
    multiply_in(version_, &product);
  }

  // Sets `scores` to the matrix product of `queries` [count, width] and the packed `columns`.
  // Scores outside of the band `seen` may stay unset.
  void multiply_scores(const Real* queries, std::int64_t count, const Real* columns,
                       std::int64_t column_count, const Band& seen, Real* scores) {
    SmallProduct<Real> product{count, column_count, view_.width};
    product.a = queries;
    product.a_row = view_.width;
    product.b = Panels<Real>::packed(columns, view_.width);
    product.c = scores;
    product.c_row = scratch_.score_stride;
    product.padded = true;
    product.column_band = seen;
    multiply_in(version_, &product);
  }

  const View<Real>& view_;
  const PositionPanels<Real>& position_columns_;
  Real *probabilities_, *sums_;
  machine::VectorVersion version_;
  Scratch<Real> scratch_{view_};
  Real* key_columns_ = scratch_.take(scratch_.columns);
  Real* values_ = scratch_.take(scratch_.keys);
  Real* content_ = scratch_.take(scratch_.rows);
  Real* position_ = scratch_.take(scratch_.rows);
  Real* scores_ = scratch_.take(scratch_.scores);
  Real* by_row_ = scratch_.take(scratch_.scores);
  Real* factors_ = scratch_.take(scratch_.scores);
};

template <typename Real>
AttentionResult forward(const AttentionInput& input, bool keep, machine::VectorVersion version) {
  const View<Real> view(input);
  AttentionResult result;
  result.sums = at::empty(input.queries.sizes(), input.queries.options());
  if (keep) {
    result.probabilities =
        at::empty({view.batch, view.heads, view.segment, view.kept_row()}, input.queries.options());
  }
  const PositionPanels<Real> positions =
      pack_positions(view, (view.width + 1) * view.kept_row(),
                     [&](const Packing<Real>* packing) { pack_columns_in(version, packing); });
  Real* probabilities = keep ? result.probabilities.template data_ptr<Real>() : nullptr;
  Real* sums = result.sums.template data_ptr<Real>();
  const auto attend = [&](std::int64_t begin, std::int64_t end) {
    Forward<Real> heads(view, positions, probabilities, sums, version);
    for (std::int64_t task = begin; task < end; ++task) {
      if (task + 1 < end) prefetch_inputs(view, (task + 1) / view.heads, (task + 1) % view.heads);
      heads.run(task / view.heads, task % view.heads);
    }
  };
  // The estimate counts 3 matrix products: scores by content, scores by position, and sums of
  // values.
  machine::for_parts(view.batch * view.heads, view.microseconds(3), attend);
  return result;
}

}  // namespace
}  // namespace attention

AttentionResult attention_forward(const AttentionInput& input, bool keep,
                                  machine::VectorVersion version) {
  return input.queries.scalar_type() == at::kDouble
             ? attention::forward<double>(input, keep, version)
             : attention::forward<float>(input, keep, version);
}

}  // namespace ql::kernels
