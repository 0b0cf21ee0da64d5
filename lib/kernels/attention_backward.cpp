// Computes the gradients of the attention kernel.

#include <algorithm>
#include <vector>

#include "kernels/attention_scores.h"
#include "kernels/product.h"

namespace ql::kernels {
namespace attention {
namespace {

// The gradients of positions and biases are sums over streams, which are divided into groups of at
// most this many. For each group, head and part of the queries, one thread adds up these gradients,
// stream by stream. Then sum_over_first() adds the sums of the groups. The size is fixed, so that
// the result does not depend on the number of threads.
constexpr std::int64_t kGroup = 8;

// Points to gradients. `queries` and `keys_values` have the shapes of the input; if keys and values
// are rounded, their gradients are at `rounded` in the place of `keys_values`. `positions` [window,
// width] and the biases [width] belong to one head; they are summed over some of the streams.
template <typename Real>
struct GradientView {
  Real *queries, *keys_values;
  Bfloat16Bits* rounded;
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
// The first tile of a block of keys sets the gradients of these keys and values; later tiles add to
// these gradients. Tiles with the same keys follow one another, so that the packed keys, the values
// and their gradients stay in the cache. The gradients of r, u and v are sums over the streams of a
// group (kGroup), so every call of run() adds to them.
template <typename Real, typename Number>
class Backward {
 public:
  Backward(const View<Real>& view, const PositionPanels<Packed<Number>>& position_columns,
           const PositionPanels<Packed<Number>>& position_rows, const ResultView<Real>& result,
           const Real* sums_gradient, machine::VectorVersion version)
      : view_(view),
        scores_(view, position_columns, result.probabilities, version),
        position_rows_(position_rows),
        result_(result),
        sums_gradient_(sums_gradient),
        version_(version) {}

  void run(std::int64_t stream, std::int64_t head, std::int64_t part,
           const GradientView<Real>& out) {
    const std::int64_t states = 2 * view_.window, row = view_.row(), width = view_.width;
    const std::int64_t at = stream * states * row + head * width;
    Real* const window = view_.widens ? window_.begin() : out.keys_values + at;
    if (view_.widens) {
      prefetch<true>(out.rounded + at, states, row, width);
    } else if (view_.window <= kShortWindow) {
      prefetch<true>(window, states, row, width);
    }
    // If the dilation exceeds the segment length, some keys are not seen by any query. This loop
    // sets the gradients of these keys, and of their values, to 0.
    const std::int64_t dilation = view_.dilation(head), memory = view_.window - view_.segment;
    // Residues from window - memory to dilation - memory have no key in the window.
    for (std::int64_t residue = std::max(view_.segment, dilation - memory); residue < dilation;
         ++residue) {
      const std::int64_t first = (memory + residue) % dilation;
      clear(rows_of(window, first, dilation), 0, (view_.window - 1 - first) / dilation + 1);
    }
    for (std::int64_t first = 0; first < std::min(view_.segment, dilation); ++first) {
      const AttentionProblem<Real> problem{view_, stream, head, first};
      scores_.start(problem);
      gradient_rows_.clear();
      for (std::int64_t query = 0; query < problem.queries; ++query) {
        gradient_rows_.push_back(sums_gradient_ + problem.query_at(query));
      }
      problem.for_blocks(part, [&](std::int64_t begin, std::int64_t count) {
        start_queries(problem, begin, count);
      });
      const KeyGradients of_keys = rows_of(window, problem.first_key, problem.step);
      problem.for_key_blocks(
          [&](const Range& keys) { run_key_block(problem, part, keys, out, of_keys); });
      problem.for_blocks(part, [&](std::int64_t begin, std::int64_t count) {
        finish_queries(problem, begin, count, out);
      });
    }
    if constexpr (std::is_same_v<Real, float>) {
      if (view_.widens) {
        copy_rows_in(version_, static_cast<const Real*>(window), width, states, width,
                     out.rounded + at, row);
      }
    }
  }

 private:
  using Element = Packed<Number>;

  // Points to the gradients of keys and values, which are added to if they are set. Row 0 is for
  // key `first`.
  struct KeyGradients {
    KeyGradients from(std::int64_t key) const {
      return {keys + (key - first) * row, values + (key - first) * row, row, key, set};
    }
    Real *keys, *values;
    std::int64_t row, first = 0;
    bool set = false;
  };

  // Points to a tile as the first operand of products: its rows, its columns, and its diagonals,
  // which are read as columns are.
  struct TileOperand {
    const Number *by_row = nullptr, *by_column = nullptr, *by_diagonal = nullptr;
  };

  Operands<Real, Number>& operands() { return scores_.operands(); }

  // Returns the gradients of every step-th key of a window, beginning with `first`.
  KeyGradients rows_of(Real* window, std::int64_t first, std::int64_t step) const {
    Real* const keys = window + first * 2 * view_.pitch();
    return {keys, keys + view_.pitch(), step * 2 * view_.pitch()};
  }

  // Clears the gradients of the keys and values from `key` up to `end`.
  void clear(const KeyGradients& of_keys, std::int64_t key, std::int64_t end) {
    for (; key < end; ++key) {
      const KeyGradients at = of_keys.from(key);
      std::fill_n(at.keys, view_.width, Real(0));
      std::fill_n(at.values, view_.width, Real(0));
    }
  }

  // Packs the operands that belong to a block of queries. If the keys have several blocks, also
  // finds the means of the gradients of weights.
  void start_queries(const AttentionProblem<Real>& problem, std::int64_t begin,
                     std::int64_t count) {
    scores_.start_queries(problem, begin, count);
    const Real* const* queries = scores_.query_rows() + begin;
    const Real* const* gradients = gradient_rows_.data() + begin;
    const auto pack = [&](const Real* const* rows, const Real* bias, const Buffer<Element>& to) {
      operands().pack_rows({rows, count, view_.width, nullptr, 0, bias}, packed_at(to, begin));
    };
    if constexpr (kRounds) {
      scale_rows_in(version_, gradients, static_cast<const Real*>(nullptr), Real(1), count,
                    view_.width, scores_.operand_row(),
                    rounded_sums_.begin() + begin * scores_.operand_row());
    }
    if (!has_sums_in_place(problem)) pack(gradients, nullptr, sums_);
    pack(queries, bias_of(view_.content_bias, problem), content_);
    if (view_.positions != nullptr) {
      pack(queries, bias_of(view_.position_bias, problem), position_);
    }
    if (view_.window > kTileKeys) {
      const Real* sums = result_.sums + problem.query_at(begin);
      const std::int64_t row = problem.step * view_.row();
      Real* means = means_.begin() + begin;
      if constexpr (kRounds) {
        multiply_and_add_rows_in(
            version_,
            static_cast<const Number*>(rounded_sums_.begin() + begin * scores_.operand_row()),
            scores_.operand_row(), sums, row, count, view_.width, means);
      } else {
        multiply_and_add_rows_in(version_, *gradients, row, sums, row, count, view_.width, means);
      }
    }
  }

  // Finds the gradients of a block of keys, and adds what these keys give to all other gradients.
  void run_key_block(const AttentionProblem<Real>& problem, std::int64_t part, const Range& keys,
                     const GradientView<Real>& out, const KeyGradients& of_keys) {
    if (!problem.has_tiles(part, keys)) {
      if (!of_keys.set) clear(of_keys, keys.begin, keys.end);
      return;
    }
    scores_.start_keys(keys);
    const std::int64_t count = keys.end - keys.begin;
    const Panels<Element> rows = scores_.pack_keys(problem, 0, keys_.begin());
    operands().pack_columns({scores_.key_rows(), count, view_.width, nullptr, view_.pitch()},
                            value_columns_.begin());
    const KeyGradients result = of_keys.from(keys.begin);
    KeyGradients target = result;
    // Sums of several tiles are added up where the rows follow one another.
    const bool in_buffer = problem.blocks(part) > 1;
    if (in_buffer) {
      target.keys = of_keys_.begin();
      target.values = of_values_.begin();
      target.row = padded<Real>(view_.width);
    }
    problem.for_tiles(part, keys, [&](const Tile& tile) {
      if (!target.set) {
        const Range seen = find_range(problem.seen(tile), 0, tile.queries);
        clear(target, keys.begin, tile.key + seen.begin);
        clear(target, tile.key + seen.end, keys.end);
      }
      run_tile(problem, tile, rows, out, target);
      target.set = true;
    });
    if (!in_buffer) return;
    for (std::int64_t key = keys.begin; key < keys.end; ++key) {
      std::copy_n(target.from(key).keys, view_.width, result.from(key).keys);
      std::copy_n(target.from(key).values, view_.width, result.from(key).values);
    }
  }

  void run_tile(const AttentionProblem<Real>& problem, const Tile& tile,
                const Panels<Element>& keys, const GradientView<Real>& out,
                const KeyGradients& of_keys) {
    const TileRows<Real> rows = find_score_gradients(problem, tile);
    add_key_gradients(problem, tile, rows, of_keys);
    if (view_.positions != nullptr) add_position_gradients(problem, tile, out.positions);
    add_query_gradients(problem, tile, keys);
  }

  // Returns the place of a block of queries, beginning with `query`, in a buffer of packed rows.
  Element* packed_at(const Buffer<Element>& rows, std::int64_t query) const {
    return rows.begin() + query * padded<Real>(view_.width);
  }
  Panels<Element> packed(const Buffer<Element>& rows, const Tile& tile) {
    return Panels<Element>::packed(packed_at(rows, tile.query), operands().depth(tile.queries));
  }
  // Returns true if the gradients of sums are read where they are.
  bool has_sums_in_place(const AttentionProblem<Real>& problem) const {
    return !kRounds && problem.has_rows_in_place(problem.keys);
  }

  // Returns the tile's rows: the probabilities after dropout, and the gradients with respect to the
  // scores before the scale is applied. Also sets the operands of the products with them.
  TileRows<Real> find_score_gradients(const AttentionProblem<Real>& problem, const Tile& tile) {
    TileRows<Real> rows = scores_.compute(problem, tile);
    rows.gradients = gradients_.begin();
    rows.maxima = result_.maxima + problem.result_at(tile.query);
    rows.totals = result_.inverses + problem.result_at(tile.query);
    if (view_.window > kTileKeys) rows.means = means_.begin() + tile.query;
    rows.scale = view_.scale;
    SmallProduct<Real, Number> product{tile.queries, tile.keys, view_.width};
    if constexpr (kRounds) {
      product.a = rounded_sums_.begin() + tile.query * scores_.operand_row();
      product.a_row = scores_.operand_row();
    } else {
      product.a = sums_gradient_ + problem.query_at(tile.query);
      product.a_row = problem.step * view_.row();
    }
    product.b = scores_.columns_of(value_columns_.begin(), tile);
    product.c = rows.gradients;
    product.c_row = rows.stride;
    product.padded = true;
    product.column_band = rows.seen;
    operands().multiply(product);
    softmax_tile_gradient_in(version_, &rows);
    if constexpr (kRounds) {
      round_tile(rows);
    } else {
      weights_.by_column = rows.scores;
      score_gradients_ = {rows.gradients, rows.gradients, rows.gradients};
    }
    return rows;
  }

  // Sets the operands to the rounded tile.
  void round_tile(const TileRows<float>& rows) {
    const Range all = find_panels<float>(rows.seen, 0, rows.rows);
    // Products along diagonals also read zeros before and after the columns.
    constexpr std::int64_t kZeros = padded<float>(kMostTileRows);
    const std::int64_t begin = all.begin - kZeros, end = all.end + kZeros;
    const float *weights = rows.scores, *gradients = rows.gradients;
    const auto round_pairs = [&](const float* from, std::int64_t skew, Bfloat16Pair* to) {
      round_pairs_in(version_, from, rows.stride, rows.rows, begin, end, skew, to);
      return reinterpret_cast<const Bfloat16Bits*>(to);
    };
    weights_.by_column = round_pairs(weights, 0, rounded_weights_.begin());
    round_columns_in(version_, gradients, rows.stride, rows.rows, begin, end,
                     rounded_rows_.begin());
    score_gradients_ = {rounded_rows_.begin(), round_pairs(gradients, 0, rounded_columns_.begin()),
                        round_pairs(gradients, 1, rounded_diagonals_.begin())};
  }

  void add_key_gradients(const AttentionProblem<Real>& problem, const Tile& tile,
                         const TileRows<Real>& rows, const KeyGradients& of_keys) {
    const Range keys = find_range(rows.seen, 0, tile.queries);
    const KeyGradients target = of_keys.from(tile.key + keys.begin);
    SmallProduct<Real, Number> product{keys.end - keys.begin, view_.width, tile.queries};
    product.a = weights_.by_column + kNext * keys.begin;
    product.a_row = kNext;
    product.a_inner = kNext * rows.stride;
    product.b = packed(sums_, tile);
    if constexpr (!kRounds) {
      if (has_sums_in_place(problem)) {
        product.b = Panels<Real>::in_place(gradient_rows_[static_cast<std::size_t>(tile.query)],
                                           problem.step * view_.row());
      }
    }
    product.c_row = target.row;
    product.c = target.values;
    product.add = target.set;
    // The queries from j - memory to j - memory + farthest see key j.
    const std::int64_t nearest = tile.key + keys.begin - problem.memory - tile.query;
    product.inner_band = {nearest, nearest + problem.farthest + 1, 1, 0, tile.queries};
    operands().multiply(product);
    product.a = score_gradients_.by_column + kNext * keys.begin;
    product.b = packed(content_, tile);
    product.c = target.keys;
    operands().multiply(product);
  }

  // Row r of the tile reads row t of the position table for column t - shift + r, and the next row
  // reads it for the next column. So the gradient of row t is a sum along a diagonal of the tile.
  void add_position_gradients(const AttentionProblem<Real>& problem, const Tile& tile,
                              Real* positions) {
    const std::int64_t shift = problem.shift(tile);
    const Range table = find_range(problem.positions_seen(tile), 0, tile.queries);
    SmallProduct<Real, Number> product{table.end - table.begin, view_.width, tile.queries};
    product.a = score_gradients_.by_diagonal + kNext * (table.begin - shift);
    product.a_row = kNext;
    product.a_inner = kNext * (sizes_.tile_stride + kNext);
    product.b = packed(position_, tile);
    product.c_row = problem.step * view_.width;
    product.c = positions + (view_.window - 1) * view_.width -
                (problem.distances - 1 - table.begin) * product.c_row;
    product.add = true;
    product.inner_band = {shift - table.begin, shift - table.begin + tile.keys, -1, 0,
                          tile.queries};
    operands().multiply(product);
  }

  void add_query_gradients(const AttentionProblem<Real>& problem, const Tile& tile,
                           const Panels<Element>& keys) {
    SmallProduct<Real, Number> product{tile.queries, view_.width, tile.keys};
    product.a = score_gradients_.by_row;
    product.a_row = sizes_.tile_stride;
    product.b = scores_.rows_of(keys, tile);
    product.c = content_gradient_.begin() + tile.query * padded<Real>(view_.width);
    product.c_row = padded<Real>(view_.width);
    product.padded = true;
    product.add = !tile.first;
    product.inner_band = problem.seen(tile);
    operands().multiply(product);
    if (view_.positions == nullptr) return;
    const std::int64_t shift = problem.shift(tile);
    Range table = find_range(problem.positions_seen(tile), 0, tile.queries);
    table.begin -= table.begin % kNext;  // where a row of the packed table begins
    product.inner = table.end - table.begin;
    product.a += table.begin - shift;
    product.a_row = sizes_.tile_stride + 1;
    product.b = Panels<Element>::packed(position_rows_.of(problem.head),
                                        operands().depth(problem.distances));
    product.b.data += table.begin / kNext * kPanel<Real>;
    product.c = position_gradient_.begin() + tile.query * padded<Real>(view_.width);
    product.inner_band = {shift - table.begin, shift - table.begin + tile.keys, -1, 0,
                          product.inner};
    operands().multiply(product);
  }

  void finish_queries(const AttentionProblem<Real>& problem, std::int64_t begin, std::int64_t count,
                      const GradientView<Real>& out) {
    const std::int64_t width = view_.width, stride = padded<Real>(width);
    const Real* content = content_gradient_.begin() + begin * stride;
    const Real* position =
        view_.positions == nullptr ? nullptr : position_gradient_.begin() + begin * stride;
    add_to_sums_in(version_, content, stride, count, width, out.content_bias);
    if (position != nullptr) {
      add_to_sums_in(version_, position, stride, count, width, out.position_bias);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      join_rows_in(version_, content + r * stride,
                   position == nullptr ? position : position + r * stride, width,
                   out.queries + problem.query_at(begin + r));
    }
  }

  static constexpr std::int64_t kNext = kDepth<Number>;
  static constexpr bool kRounds = kNext == 2;

  const View<Real>& view_;
  TileScores<Real, Number> scores_;
  const PositionPanels<Element>& position_rows_;
  const ResultView<Real>& result_;
  const Real* sums_gradient_;
  machine::VectorVersion version_;
  std::vector<const Real*> gradient_rows_;
  BufferSizes<Real> sizes_{view_};
  Buffer<Element> value_columns_{sizes_.columns}, keys_{sizes_.keys};
  Buffer<Element> sums_{sizes_.rows}, content_{sizes_.rows}, position_{sizes_.rows};
  Buffer<Real> of_keys_{sizes_.keys}, of_values_{sizes_.keys};
  Buffer<Real> window_{view_.widens ? view_.window * 2 * view_.width : 0};
  Buffer<Real> content_gradient_{sizes_.rows}, position_gradient_{sizes_.rows};
  Buffer<Real> means_{view_.segment}, gradients_{sizes_.tile, kTileMargin};
  // These are for products of bfloat16.
  std::int64_t rounded_tile_ = kRounds ? sizes_.tile : 0;
  Buffer<Number> rounded_sums_{kRounds ? sizes_.rows : 0};
  Buffer<Number> rounded_rows_{rounded_tile_, kTileMargin};
  Buffer<Element> rounded_weights_{rounded_tile_, kTileMargin};
  Buffer<Element> rounded_columns_{rounded_tile_, kTileMargin};
  Buffer<Element> rounded_diagonals_{rounded_tile_, kTileMargin};
  TileOperand weights_, score_gradients_;
};

template <typename Real, typename Number = Real>
AttentionGradients backward(const AttentionInput& input, const AttentionResult& result,
                            const at::Tensor& sums_gradient, machine::VectorVersion version) {
  const View<Real> view(input);
  const std::int64_t groups = (view.batch + kGroup - 1) / kGroup, parts = view.query_parts();
  const auto options = input.queries.options();
  AttentionGradients gradients;
  gradients.queries = at::empty(input.queries.sizes(), options);
  // Every part of the queries has its own gradients of keys and values, which are then added up.
  const at::Tensor keys_values =
      at::empty({parts, view.batch, view.window, 2, view.heads, view.width},
                input.keys_values.front().options());
  // For every part, group and head, there are rows for the gradients of positions, content bias and
  // position bias.
  const std::int64_t rows = view.window + 2;
  const at::Tensor partial = at::zeros({groups * parts, view.heads, rows, view.width}, options);
  PositionPanels<Packed<Number>> columns;
  if (!view.keeps_probabilities) columns = pack_position_columns<Real, Number>(view, version);
  const Operands<Real, Number> operands(version);
  const auto table = pack_positions<Packed<Number>>(
      view, padded<Real>(view.width) * view.most_keys,
      [&](const Packing<Real>& packing, Packed<Number>* to) { operands.pack_rows(packing, to); });
  const ResultView<Real> found(result);
  const Real* gradient = sums_gradient.data_ptr<Real>();
  Real* query_gradients = gradients.queries.data_ptr<Real>();
  Real* key_gradients = view.widens ? nullptr : keys_values.data_ptr<Real>();
  Bfloat16Bits* rounded = view.widens ? bfloat16_bits(keys_values) : nullptr;
  Real* partials = partial.data_ptr<Real>();
  const auto go_back = [&](std::int64_t begin, std::int64_t end) {
    Backward<Real, Number> heads(view, columns, table, found, gradient, version);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t part = task / view.heads % parts, head = task % view.heads;
      const std::int64_t group = task / view.heads / parts;
      Real* of_positions = partials + task * rows * view.width;
      Real* biases = of_positions + view.window * view.width;
      const GradientView<Real> out{
          query_gradients, view.widens ? nullptr : key_gradients + part * keys_values.stride(0),
          rounded,         of_positions,
          biases,          biases + view.width};
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
  if (input.queries.scalar_type() == at::kDouble) {
    return attention::backward<double>(input, result, sums_gradient, version);
  }
  return input.rounds
             ? attention::backward<float, Bfloat16Bits>(input, result, sums_gradient, version)
             : attention::backward<float>(input, result, sums_gradient, version);
}

}  // namespace ql::kernels
