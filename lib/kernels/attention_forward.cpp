// Computes the forward pass of the attention kernel.

#include <algorithm>

#include "kernels/attention_scores.h"

namespace ql::kernels {
namespace attention {
namespace {

// Computes the attention of one stream and head, a tile at a time. Dropout's factor f_ij is 0 for a
// dropped probability, and 1 without dropout. With the scores of TileScores, for the keys j that
// query i sees,
//
//   p_ij  = e^(score_ij) / sum_n e^(score_in)
//   sum_i = sum_j f_ij p_ij value_j
template <typename Real, typename Number>
class Forward {
 public:
  Forward(const View<Real>& view, const PositionPanels<Packed<Number>>& positions,
          const ResultView<Real>& result, machine::VectorVersion version)
      : view_(view),
        scores_(view, positions, nullptr, version),
        result_(result),
        version_(version) {}

  void run(std::int64_t stream, std::int64_t head, std::int64_t part) {
    for (std::int64_t first = 0; first < std::min(view_.segment, view_.dilation(head)); ++first) {
      const AttentionProblem<Real> problem{view_, stream, head, first};
      scores_.start(problem);
      problem.for_blocks(part, [&](std::int64_t begin, std::int64_t count) {
        scores_.start_queries(problem, begin, count);
      });
      problem.for_key_blocks([&](const Range& keys) {
        if (!problem.has_tiles(part, keys)) return;
        scores_.start_keys(keys);
        const auto values = scores_.pack_keys(problem, view_.pitch(), values_.begin());
        problem.for_tiles(part, keys, [&](const Tile& tile) { add_tile(problem, tile, values); });
      });
    }
  }

 private:
  using Element = Packed<Number>;

  // Adds the tile's values to the sums of its queries, and completes these sums with the last tile.
  void add_tile(const AttentionProblem<Real>& problem, const Tile& tile,
                const Panels<Element>& values) {
    const std::int64_t width = view_.width, stride = padded<Real>(width);
    const std::int64_t row = problem.step * view_.row(), at = problem.result_at(tile.query);
    const bool whole = tile.first && tile.last, keeps = result_.maxima != nullptr;
    Real* const sums = result_.sums + problem.query_at(tile.query);
    Real* const sums_so_far = sums_.begin() + tile.query * stride;
    TileRows<Real> rows = scores_.compute(problem, tile);
    rows.maxima = keeps ? result_.maxima + at : maxima_.begin() + tile.query;
    rows.totals = keeps ? result_.inverses + at : totals_.begin() + tile.query;
    rows.sums = sums_so_far;
    rows.width = stride;
    if (result_.probabilities != nullptr) {
      rows.probability_stride = padded<Real>(view_.most_keys);
      rows.probabilities = result_.probabilities + at * rows.probability_stride + tile.key;
    }
    softmax_tile_in(version_, &rows);

    SmallProduct<Real, Number> product{tile.queries, width, tile.keys};
    product.a = weights_of(rows);
    product.a_row = rows.stride;
    product.b = scores_.rows_of(values, tile);
    product.c = whole ? sums : sums_so_far;
    product.c_row = whole ? row : stride;
    product.padded = !whole;
    product.add = !tile.first;
    product.inner_band = rows.seen;
    scores_.operands().multiply(product);
    if (whole || !tile.last) return;
    for (std::int64_t r = 0; r < tile.queries; ++r) {
      scale_numbers_in(version_, static_cast<const Real*>(sums_so_far) + r * stride, width,
                       rows.totals[r], sums + r * row);
    }
  }

  const Number* weights_of(const TileRows<Real>& rows) const {
    if constexpr (kDepth<Number> == 1) {
      return rows.scores;
    } else {
      const Range all = find_panels<Real>(rows.seen, 0, rows.rows);
      round_columns_in(version_, static_cast<const Real*>(rows.scores), rows.stride, rows.rows,
                       all.begin, all.end, weights_.begin());
      return weights_.begin();
    }
  }

  const View<Real>& view_;
  TileScores<Real, Number> scores_;
  const ResultView<Real>& result_;
  machine::VectorVersion version_;
  BufferSizes<Real> sizes_{view_};
  Buffer<Element> values_{sizes_.keys};
  Buffer<Real> sums_{sizes_.rows}, maxima_{view_.segment}, totals_{view_.segment};
  Buffer<Number> weights_{kDepth<Number> == 1 ? 0 : sizes_.tile};
};

template <typename Real, typename Number = Real>
AttentionResult forward(const AttentionInput& input, bool keep, machine::VectorVersion version) {
  const View<Real> view(input);
  const auto options = input.queries.options();
  AttentionResult result;
  result.sums = at::empty(input.queries.sizes(), options);
  if (keep) {
    result.normalizers = at::empty({2, view.batch, view.heads, view.segment}, options);
    if (view.keeps_probabilities) {
      result.probabilities =
          at::empty({view.batch, view.heads, view.segment, padded<Real>(view.most_keys)}, options);
    }
  }
  const auto positions = pack_position_columns<Real, Number>(view, version);
  const ResultView<Real> pointers(result);
  const std::int64_t parts = view.query_parts();
  const auto attend = [&](std::int64_t begin, std::int64_t end) {
    Forward<Real, Number> heads(view, positions, pointers, version);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t head = task / parts, next = (task + 1) / parts;
      if (task + 1 < end) prefetch_inputs(view, next / view.heads, next % view.heads);
      heads.run(head / view.heads, head % view.heads, task % parts);
    }
  };
  // The estimate counts 3 matrix products: scores by content, scores by position, and sums of
  // values.
  machine::for_parts(view.batch * view.heads * parts, view.microseconds(3), attend);
  return result;
}

}  // namespace
}  // namespace attention

AttentionResult attention_forward(const AttentionInput& input, bool keep,
                                  machine::VectorVersion version) {
  if (input.queries.scalar_type() == at::kDouble) {
    return attention::forward<double>(input, keep, version);
  }
  return input.rounds ? attention::forward<float, Bfloat16Bits>(input, keep, version)
                      : attention::forward<float>(input, keep, version);
}

}  // namespace ql::kernels
