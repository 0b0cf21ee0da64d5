// Computes the gradients of the attention kernel.

#include <algorithm>
#include <vector>

#include "kernels/attention_scores.h"
#include "kernels/product.h"

namespace ql::kernels {
namespace attention {
namespace {

// The gradients of positions and biases are sums over streams, which are divided into groups of at
// most this many. For each group and head, one thread adds up these gradients, stream by stream.
// Then sum_over_first() adds the sums of the groups. The size is fixed, so that the result does not
// depend on the number of threads.
constexpr std::int64_t kGroup = 8;

// Points to gradients. `queries` and `keys_values` have the shapes of the input. `positions`
// [window, width] and the biases [width] belong to one head; they are summed over some of the
// streams.
template <typename Real>
struct GradientView {
  Real *queries, *keys_values;
  Real *positions, *content_bias, *position_bias;
};

// Computes the gradients of one (stream, head), a tile at a time. The letters are those of Forward
// (attention_forward.cpp): p_ij is the probability of key j for query i, f_ij dropout's factor, c =
// 1 / sqrt(d_head), and m the window index of query 0. G_i is the gradient with respect to sum_i.
// The gradients are
//
//   w_ij    = f_ij p_ij                                      weights of the tile
//   D_ij    = f_ij (G_i . value_j)                           gradient of p_ij
//   S_ij    = c p_ij (D_ij - G_i . sum_i)                    gradient of (score_ij / c)
//   value_j : sum_i w_ij G_i
//   k_j     : sum_i S_ij (q_i + u)
//   r_d     : sum_i S_ij (q_i + v), j = m + i - d            a diagonal of S
//   q_i     : sum_j S_ij k_j + sum_j S_ij r_(m+i-j)
//   u, v    : the first and the second term of q_i, summed over the queries
//
// The first block of queries of a part (View::query_parts()) sets the gradients of keys and values;
// later blocks add to these gradients. The gradients of r, u and v are sums over the streams of a
// group (kGroup), so every call of run() adds to them.
template <typename Real>
class Backward {
 public:
  Backward(const View<Real>& view, const PositionPanels<Real>& position_columns,
           const PositionPanels<Real>& position_rows, const ResultView<Real>& result,
           const Real* sums_gradient, machine::VectorVersion version)
      : view_(view),
        scores_(view, position_columns, scratch_, result.probabilities, version),
        position_rows_(position_rows),
        result_(result),
        sums_gradient_(sums_gradient),
        version_(version) {}

  void run(std::int64_t stream, std::int64_t head, std::int64_t part,
           const GradientView<Real>& out) {
    Real* keys_values =
        out.keys_values + stream * view_.window * 2 * view_.row() + head * view_.width;
    if (view_.window <= kShortWindow) {
      prefetch<true>(keys_values, 2 * view_.window, view_.row(), view_.width);
    }
    // If the dilation exceeds the segment length, some keys are not seen by any query. This loop
    // sets the gradients of these keys, and of their values, to 0.
    const std::int64_t dilation = view_.dilation(head), memory = view_.window - view_.segment;
    // Residues from window - memory to dilation - memory have no key in the window.
    for (std::int64_t residue = std::max(view_.segment, dilation - memory); residue < dilation;
         ++residue) {
      Real* const first = keys_values + (memory + residue) % dilation * 2 * view_.row();
      clear({first, first + view_.row(), dilation * 2 * view_.row()}, 0,
            (view_.window - 1 - (memory + residue) % dilation) / dilation + 1);
    }
    for (std::int64_t first = 0; first < std::min(view_.segment, view_.dilation(head)); ++first) {
      const AttentionProblem<Real> problem{view_, stream, head, first};
      scores_.start(problem);
      gradient_rows_.clear();
      for (std::int64_t query = 0; query < problem.queries; ++query) {
        gradient_rows_.push_back(sums_gradient_ + problem.query_at(query));
      }
      const Panels<Real> keys = scores_.pack_all(problem, 0, keys_);
      const Packing<Real> values{scores_.key_rows(), problem.keys, view_.width, value_columns_,
                                 view_.row()};
      pack_columns_in(version_, &values);
      const std::int64_t row = problem.step * 2 * view_.row();
      Real* const of_keys = keys_values + problem.first_key * 2 * view_.row();
      KeyGradients target{of_keys, of_keys + view_.row(), row};
      // Sums of several blocks are added up where the rows follow one another.
      const bool in_buffer = problem.blocks(part) > 1;
      if (in_buffer) target = {of_keys_, of_values_, padded<Real>(view_.width)};
      problem.for_blocks(part, [&](std::int64_t begin, std::int64_t count) {
        if (!target.set) clear_unseen(problem, begin, count, target);
        run_block(problem, begin, count, keys, out, target);
        target.set = true;
      });
      if (!target.set) clear(target, 0, problem.keys);
      if (!in_buffer) continue;
      for (std::int64_t key = 0; key < problem.keys; ++key) {
        std::copy_n(target.keys + key * target.row, view_.width, of_keys + key * row);
        std::copy_n(target.values + key * target.row, view_.width,
                    of_keys + key * row + view_.row());
      }
    }
  }

 private:
  // Points to the gradients of the problem's keys and values, which are added to if they are set.
  struct KeyGradients {
    Real *keys, *values;
    std::int64_t row;
    bool set = false;
  };

  void run_block(const AttentionProblem<Real>& problem, std::int64_t begin, std::int64_t count,
                 const Panels<Real>& key_panels, const GradientView<Real>& out,
                 const KeyGradients& of_keys) {
    scores_.start_block(problem, begin, count);
    const Real* const* queries = scores_.query_rows() + begin;
    Panels<Real> sums = Panels<Real>::packed(sums_, count);
    if (problem.has_rows_in_place(problem.keys)) {
      sums = Panels<Real>::in_place(gradient_rows_[static_cast<std::size_t>(begin)],
                                    problem.step * view_.row());
    } else {
      pack(gradient_rows_.data() + begin, count, nullptr, sums_);
    }
    pack(queries, count, bias_of(view_.content_bias, problem), content_);
    if (view_.positions != nullptr) {
      pack(queries, count, bias_of(view_.position_bias, problem), position_);
    }
    if (view_.window > kTileKeys) {
      multiply_and_add_rows_in(version_, sums_gradient_ + problem.query_at(begin),
                               static_cast<const Real*>(result_.sums) + problem.query_at(begin),
                               problem.step * view_.row(), count, view_.width, means_);
    }
    problem.for_tiles(begin, count, [&](const Tile& tile) {
      const TileRows<Real> rows = find_score_gradients(problem, tile);
      add_key_gradients(problem, tile, rows, sums, of_keys);
      if (view_.positions != nullptr) add_position_gradients(problem, tile, out.positions);
      add_query_gradients(problem, tile, key_panels);
    });
    finish_query_gradients(problem, begin, count, out);
  }

  // Clears the gradients of the keys, and of their values, that no query of the block sees.
  void clear_unseen(const AttentionProblem<Real>& problem, std::int64_t begin, std::int64_t count,
                    const KeyGradients& of_keys) {
    const Range keys = find_range(problem.seen(begin), 0, count);
    clear(of_keys, 0, keys.begin);
    clear(of_keys, keys.end, problem.keys);
  }

  // Clears the gradients of the keys and values from `key` up to `end`.
  void clear(const KeyGradients& of_keys, std::int64_t key, std::int64_t end) {
    for (; key < end; ++key) {
      std::fill_n(of_keys.keys + key * of_keys.row, view_.width, Real(0));
      std::fill_n(of_keys.values + key * of_keys.row, view_.width, Real(0));
    }
  }

  void pack(const Real* const* rows, std::int64_t count, const Real* bias, Real* to) {
    const Packing<Real> packing{rows, count, view_.width, to, 0, bias};
    pack_rows_in(version_, &packing);
  }

  // Returns the tile's rows: the probabilities after dropout, and the gradients with respect to the
  // scores before the scale is applied.
  TileRows<Real> find_score_gradients(const AttentionProblem<Real>& problem, const Tile& tile) {
    TileRows<Real> rows = scores_.compute(problem, tile);
    SmallProduct<Real> product{tile.queries, tile.keys, view_.width};
    product.a = sums_gradient_ + problem.query_at(tile.query);
    product.a_row = problem.step * view_.row();
    product.b = scores_.columns_of(value_columns_, tile);
    product.c = gradients_;
    product.c_row = rows.stride;
    product.padded = true;
    product.column_band = rows.seen;
    multiply_in(version_, &product);
    rows.gradients = gradients_;
    rows.maxima = result_.maxima + problem.result_at(tile.query);
    rows.totals = result_.inverses + problem.result_at(tile.query);
    if (view_.window > kTileKeys) rows.means = means_;
    rows.scale = view_.scale;
    softmax_tile_gradient_in(version_, &rows);
    return rows;
  }

  void add_key_gradients(const AttentionProblem<Real>& problem, const Tile& tile,
                         const TileRows<Real>& rows, const Panels<Real>& sums,
                         const KeyGradients& of_keys) {
    const Range keys = find_range(rows.seen, 0, tile.queries);
    SmallProduct<Real> product{keys.end - keys.begin, view_.width, tile.queries};
    product.a = rows.scores + keys.begin;
    product.a_row = 1;
    product.a_inner = rows.stride;
    product.b = sums;
    product.c_row = of_keys.row;
    product.c = of_keys.values + (tile.key + keys.begin) * of_keys.row;
    product.add = of_keys.set;
    // The queries from j - memory to j - memory + farthest see key j.
    const std::int64_t nearest = tile.key + keys.begin - problem.memory - tile.query;
    product.inner_band = {nearest, nearest + problem.farthest + 1, 1, 0, tile.queries};
    multiply_in(version_, &product);
    product.a = rows.gradients + keys.begin;
    product.b = Panels<Real>::packed(content_, tile.queries);
    product.c = of_keys.keys + (tile.key + keys.begin) * of_keys.row;
    multiply_in(version_, &product);
  }

  // Row r of the tile reads row t of the position table for column t - shift + r, and the next row
  // reads it for the next column. So the gradient of row t is a sum along a diagonal of gradients_.
  void add_position_gradients(const AttentionProblem<Real>& problem, const Tile& tile,
                              Real* positions) {
    const std::int64_t shift = problem.shift(tile);
    const Range table = find_range(problem.positions_seen(tile), 0, tile.queries);
    SmallProduct<Real> product{table.end - table.begin, view_.width, tile.queries};
    product.a = gradients_ + (table.begin - shift);
    product.a_row = 1;
    product.a_inner = scratch_.tile_stride + 1;
    product.b = Panels<Real>::packed(position_, tile.queries);
    product.c_row = problem.step * view_.width;
    product.c = positions + (view_.window - 1) * view_.width -
                (problem.distances - 1 - table.begin) * product.c_row;
    product.add = true;
    product.inner_band = {shift - table.begin, shift - table.begin + tile.keys, -1, 0,
                          tile.queries};
    multiply_in(version_, &product);
  }

  void add_query_gradients(const AttentionProblem<Real>& problem, const Tile& tile,
                           const Panels<Real>& keys) {
    SmallProduct<Real> product{tile.queries, view_.width, tile.keys};
    product.a = gradients_;
    product.a_row = scratch_.tile_stride;
    product.b = keys;
    product.b.data += tile.key * keys.row;
    product.c = content_gradient_;
    product.c_row = padded<Real>(view_.width);
    product.padded = true;
    product.add = !tile.first;
    product.inner_band = problem.seen(tile);
    multiply_in(version_, &product);
    if (view_.positions == nullptr) return;
    const std::int64_t shift = problem.shift(tile);
    const Range table = find_range(problem.positions_seen(tile), 0, tile.queries);
    product.inner = table.end - table.begin;
    product.a = gradients_ + (table.begin - shift);
    product.a_row = scratch_.tile_stride + 1;
    product.b = Panels<Real>::packed(position_rows_.of(problem.head), problem.distances);
    product.b.data += table.begin * kPanel<Real>;
    product.c = position_gradient_;
    product.inner_band = {shift - table.begin, shift - table.begin + tile.keys, -1, 0,
                          product.inner};
    multiply_in(version_, &product);
  }

  void finish_query_gradients(const AttentionProblem<Real>& problem, std::int64_t begin,
                              std::int64_t count, const GradientView<Real>& out) {
    const std::int64_t width = view_.width, stride = padded<Real>(width);
    const bool by_position = view_.positions != nullptr;
    add_to_sums_in(version_, static_cast<const Real*>(content_gradient_), stride, count, width,
                   out.content_bias);
    if (by_position) {
      add_to_sums_in(version_, static_cast<const Real*>(position_gradient_), stride, count, width,
                     out.position_bias);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      join_rows_in(
          version_, static_cast<const Real*>(content_gradient_) + r * stride,
          by_position ? position_gradient_ + r * stride : static_cast<const Real*>(nullptr), width,
          out.queries + problem.query_at(begin + r));
    }
  }

  const View<Real>& view_;
  Scratch<Real> scratch_{view_};
  TileScores<Real> scores_;
  const PositionPanels<Real>& position_rows_;
  const ResultView<Real>& result_;
  const Real* sums_gradient_;
  machine::VectorVersion version_;
  std::vector<const Real*> gradient_rows_;
  Real* value_columns_ = scratch_.take(scratch_.columns);
  Real* keys_ = scratch_.take(scratch_.keys);
  Real* of_keys_ = scratch_.take(scratch_.keys);
  Real* of_values_ = scratch_.take(scratch_.keys);
  Real* sums_ = scratch_.take(scratch_.rows);
  Real* content_ = scratch_.take(scratch_.rows);
  Real* position_ = scratch_.take(scratch_.rows);
  Real* content_gradient_ = scratch_.take(scratch_.rows);
  Real* position_gradient_ = scratch_.take(scratch_.rows);
  Real* means_ = scratch_.take(view_.tile_queries());
  Real* gradients_ = scratch_.take(scratch_.tile, kTileMargin);
};

template <typename Real>
AttentionGradients backward(const AttentionInput& input, const AttentionResult& result,
                            const at::Tensor& sums_gradient, machine::VectorVersion version) {
  const View<Real> view(input);
  const std::int64_t groups = (view.batch + kGroup - 1) / kGroup, parts = view.query_parts();
  const auto options = input.queries.options();
  AttentionGradients gradients;
  gradients.queries = at::empty(input.queries.sizes(), options);
  // Every part of the queries has its own gradients of keys and values, which are then added up.
  const at::Tensor keys_values =
      at::empty({parts, view.batch, view.window, 2, view.heads, view.width}, options);
  // For every part, group and head, there are rows for the gradients of positions, content bias and
  // position bias.
  const std::int64_t rows = view.window + 2;
  const at::Tensor partial = at::zeros({groups * parts, view.heads, rows, view.width}, options);
  const PositionPanels<Real> columns =
      view.keeps_probabilities ? PositionPanels<Real>() : pack_position_columns(view, version);
  const PositionPanels<Real> table =
      pack_positions(view, padded<Real>(view.width) * view.most_keys,
                     [&](const Packing<Real>* packing) { pack_rows_in(version, packing); });
  const ResultView<Real> found(result);
  const Real* gradient = sums_gradient.data_ptr<Real>();
  Real* query_gradients = gradients.queries.data_ptr<Real>();
  Real* key_gradients = keys_values.data_ptr<Real>();
  Real* partials = partial.data_ptr<Real>();
  const auto go_back = [&](std::int64_t begin, std::int64_t end) {
    Backward<Real> heads(view, columns, table, found, gradient, version);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t part = task / view.heads % parts, head = task % view.heads;
      const std::int64_t group = task / view.heads / parts;
      Real* of_positions = partials + task * rows * view.width;
      Real* biases = of_positions + view.window * view.width;
      const GradientView<Real> out{query_gradients, key_gradients + part * keys_values.stride(0),
                                   of_positions, biases, biases + view.width};
      const std::int64_t last = std::min(view.batch, (group + 1) * kGroup);
      for (std::int64_t stream = group * kGroup; stream < last; ++stream) {
        if (stream + 1 < last) prefetch_inputs(view, stream + 1, head);
        heads.run(stream, head, part, out);
      }
    }
  };
  // The estimate counts 8 matrix products: two for the scores, one each for the gradients of
  // probabilities, values, keys and positions, and two for the gradients of queries.
  machine::for_parts(groups * parts * view.heads, view.microseconds(8), go_back);
  gradients.keys_values = parts == 1 ? keys_values[0] : sum_over_first(keys_values);
  const at::Tensor sum = sum_over_first(partial);  // [H, window + 2, d_head]
  if (view.positions != nullptr) {
    gradients.positions = sum.narrow(1, 0, view.window).transpose(0, 1);
  }
  if (view.content_bias != nullptr) gradients.content_bias = sum.select(1, view.window);
  if (view.position_bias != nullptr) gradients.position_bias = sum.select(1, view.window + 1);
  return gradients;
}

}  // namespace
}  // namespace attention

AttentionGradients attention_backward(const AttentionInput& input, const AttentionResult& result,
                                      const at::Tensor& sums_gradient,
                                      machine::VectorVersion version) {
  return input.queries.scalar_type() == at::kDouble
             ? attention::backward<double>(input, result, sums_gradient, version)
             : attention::backward<float>(input, result, sums_gradient, version);
}

}  // namespace ql::kernels
