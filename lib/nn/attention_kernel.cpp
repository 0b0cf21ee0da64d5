#include "nn/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/attention_rows.h"
#include "nn/dropout_kernel.h"
#include "nn/small_product.h"

namespace ql::nn {
namespace {

// Streams whose gradients of positions and biases are summed one after the other; the sums of the
// groups are joined in order. Fixed, so that the result does not depend on the number of threads.
constexpr std::int64_t kGroup = 8;

// A block of queries: so many that their scores stay in the nearest caches.
constexpr std::int64_t kBlockBytes = std::int64_t{1} << 15;
constexpr std::int64_t kLeastBlock = 2 * kMostTileRows;

// An end of a Band that does not bound anything.
constexpr std::int64_t kFar = std::int64_t{1} << 40;

// Zeros behind (and before) rows of scores: a product that runs along their diagonals reads this
// far beyond their ends, and rows do not all begin at the same place of a cache.
constexpr std::int64_t kMargin = 16;
static_assert(kMargin >= kMostTileRows);

// Keys and values of `length` states of the window; streams are `stride` numbers apart.
template <typename Real>
struct Part {
  const Real* data = nullptr;
  std::int64_t length = 0, stride = 0;
};

// Pointers to the data of an AttentionInput. Rows of queries are row() apart, rows of keys and
// values twice that.
template <typename Real>
struct View {
  explicit View(const AttentionInput& input)
      : batch(input.queries.size(0)),
        segment(input.queries.size(1)),
        window(input.window()),
        heads(input.queries.size(2)),
        width(input.queries.size(3)),
        span(input.reach.span),
        queries(input.queries.data_ptr<Real>()),
        positions(data_of<Real>(input.positions)),
        content_bias(data_of<Real>(input.content_bias)),
        position_bias(data_of<Real>(input.position_bias)),
        kept(data_of<std::uint8_t>(input.probability_kept)),
        kept_factor(static_cast<Real>(input.kept_factor)),
        dilations(input.reach.dilations),
        scale(static_cast<Real>(1 / std::sqrt(static_cast<double>(width)))) {
    for (const at::Tensor& part : input.keys_values) {
      parts.push_back({part.data_ptr<Real>(), part.size(1), part.stride(0)});
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      most_keys = std::max(most_keys, distances(head));
    }
  }

  template <typename Number>
  static const Number* data_of(const at::Tensor& tensor) {
    return tensor.defined() ? tensor.data_ptr<Number>() : nullptr;
  }
  std::int64_t row() const { return heads * width; }
  std::int64_t query_at(std::int64_t stream, std::int64_t head) const {
    return stream * segment * row() + head * width;
  }
  std::int64_t dilation(std::int64_t head) const {
    return dilations.empty() ? 1 : dilations[static_cast<std::size_t>(head)];
  }
  // Rows of the position table that the head uses: as many as a query of it can see keys.
  std::int64_t distances(std::int64_t head) const { return (window - 1) / dilation(head) + 1; }
  // Numbers of a row of probabilities that are kept.
  std::int64_t kept_row() const { return padded<Real>(most_keys); }
  std::int64_t block() const {
    const std::int64_t rows = kBlockBytes / static_cast<std::int64_t>(sizeof(Real)) / kept_row();
    return std::min(segment, std::max(kLeastBlock, rows / kMostTileRows * kMostTileRows));
  }

  std::int64_t batch, segment, window, heads, width, span;
  std::vector<Part<Real>> parts;
  const Real *queries, *positions, *content_bias, *position_bias;
  const std::uint8_t* kept;
  Real kept_factor;
  std::vector<std::int64_t> dilations;
  Real scale;
  std::int64_t most_keys = 0;
};

// The panels of every head's position table: row t is the distance (distances - 1 - t) * dilation.
template <typename Real>
struct PositionPanels {
  std::int64_t size = 0;  // of a head
  std::vector<Real> data;
  const Real* of(std::int64_t head) const { return data.data() + head * size; }
};

// Kernel: pack_rows_in or pack_columns_in.
template <typename Real, typename Kernel>
PositionPanels<Real> pack_positions(const View<Real>& view, std::int64_t size,
                                    const Kernel& kernel) {
  PositionPanels<Real> panels;
  if (view.positions == nullptr) {
    return panels;
  }
  panels.size = size;
  panels.data.resize(static_cast<std::size_t>(view.heads * size));
  std::vector<const Real*> rows;
  for (std::int64_t head = 0; head < view.heads; ++head) {
    rows.clear();
    for (std::int64_t distance = (view.distances(head) - 1) * view.dilation(head); distance >= 0;
         distance -= view.dilation(head)) {
      rows.push_back(view.positions + (view.window - 1 - distance) * view.row() +
                     head * view.width);
    }
    Packing<Real> packing;
    packing.rows = rows.data();
    packing.count = static_cast<std::int64_t>(rows.size());
    packing.width = view.width;
    packing.to = panels.data.data() + head * size;
    kernel(&packing);
  }
  return panels;
}

// Every dilation-th query of a stream and head, from query `first` on, and the keys that they can
// see: an attention of its own, whose queries and keys are counted from 0.
template <typename Real>
struct Problem {
  Problem(const View<Real>& in, std::int64_t of_stream, std::int64_t of_head,
          std::int64_t first_query)
      : view(in),
        stream(of_stream),
        head(of_head),
        step(in.dilation(of_head)),
        first(first_query),
        distances(in.distances(of_head)),
        queries((in.segment - first_query - 1) / step + 1),
        memory((in.window - in.segment + first_query) / step),
        keys(memory + queries),
        first_key((in.window - in.segment + first_query) % step),
        farthest(in.span > 0 ? in.span - 1 : keys) {}

  // Of the keys, by query, from query `begin` on.
  Band seen(std::int64_t begin) const {
    return {memory + begin - farthest, memory + begin + 1, 1, 0, keys};
  }
  // Query i meets key j in row shift - i + j of the position table.
  std::int64_t shift() const { return distances - keys + queries - 1; }
  // The rows of the position table that have something for queries from `begin` on.
  std::int64_t farthest_row() const { return std::max<std::int64_t>(0, distances - 1 - farthest); }
  Band positions_seen(std::int64_t begin) const {
    return {shift() - begin, kFar, -1, farthest_row(), distances};
  }
  const std::uint8_t* kept(std::int64_t query) const {
    return view.kept +
           ((stream * view.heads + head) * view.segment + first + query * step) * view.window +
           first_key;
  }
  // Whether a product with so many rows had better read its second matrix where it stands than from
  // panels: they pay when they are read often. (Keys and values in several parts are in no one
  // place, and a last panel that is not whole would be read beyond its end.)
  bool has_rows_in_place(std::int64_t rows) const {
    return rows <= 2 * kMostTileRows && view.width % kPanel<Real> == 0 && view.parts.size() == 1;
  }
  std::int64_t kept_at(std::int64_t query) const {
    return ((stream * view.heads + head) * view.segment + first + query * step) * view.kept_row();
  }
  std::int64_t query_at(std::int64_t query) const {
    return view.query_at(stream, head) + (first + query * step) * view.row();
  }

  const View<Real>& view;
  std::int64_t stream, head, step, first, distances, queries, memory, keys, first_key, farthest;
};

// Memory for the problems of one thread. Rows of scores have margins, see kMargin; `front` makes
// room for products along diagonals to begin before the first row.
template <typename Real>
class Scratch {
 public:
  explicit Scratch(const View<Real>& view)
      : score_stride(view.kept_row() + kMargin),
        keys(padded<Real>(view.width) * view.most_keys),
        columns(view.width * view.kept_row()),
        rows(view.block() * padded<Real>(view.width)),
        scores((view.block() + 1) * (score_stride + kPanel<Real>)) {}

  Real* take(std::int64_t size, std::int64_t front = 0) {
    buffers_.emplace_back(static_cast<std::size_t>(size + front));
    return buffers_.back().data() + front;
  }

  // Sizes: panels of keys, of their columns, of a block's queries, and a block's scores.
  std::int64_t score_stride, keys, columns, rows, scores;
  std::vector<const Real*> key_rows, query_rows, gradient_rows;

 private:
  std::vector<std::vector<Real>> buffers_;
};

template <typename Real>
void find_rows(const Problem<Real>& problem, Scratch<Real>& scratch) {
  const View<Real>& view = problem.view;
  scratch.key_rows.clear();
  std::int64_t begin = 0, key = problem.first_key;
  const std::int64_t end = problem.first_key + problem.keys * problem.step;
  for (const Part<Real>& part : view.parts) {
    const Real* states = part.data + problem.stream * part.stride + problem.head * view.width;
    for (; key < std::min(end, begin + part.length); key += problem.step) {
      scratch.key_rows.push_back(states + (key - begin) * 2 * view.row());
    }
    begin += part.length;
  }
  scratch.query_rows.clear();
  for (std::int64_t query = 0; query < problem.queries; ++query) {
    scratch.query_rows.push_back(view.queries + problem.query_at(query));
  }
}

// Dropout's factors of the queries from `begin` on, in `scratch` with the stride that is returned.
template <typename Real>
std::int64_t find_factors(const Problem<Real>& problem, std::int64_t begin, std::int64_t count,
                          VectorVersion version, Real* factors) {
  const View<Real>& view = problem.view;
  if (problem.step == 1) {
    make_factors_in(version, problem.kept(begin), std::int64_t{1}, count * view.window,
                    view.kept_factor, factors);
    return view.window;
  }
  for (std::int64_t query = 0; query < count; ++query) {
    make_factors_in(version, problem.kept(begin + query), problem.step, problem.keys,
                    view.kept_factor, factors + query * problem.keys);
  }
  return problem.keys;
}

template <typename Real>
const Real* bias_of(const Real* biases, const Problem<Real>& problem) {
  return biases == nullptr ? nullptr : biases + problem.head * problem.view.width;
}

// Windows this short are read from one end to the other in less time than the memory takes to
// answer, so that they are asked for one problem ahead.
constexpr std::int64_t kShortWindow = 64;

template <bool kToWrite, typename Real>
void prefetch(const Real* rows, std::int64_t count, std::int64_t stride, std::int64_t width) {
#if defined(__GNUC__)
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t n = 0; n < width; n += kPanel<Real>) {
      __builtin_prefetch(rows + row * stride + n, kToWrite ? 1 : 0, 2);
    }
  }
#endif
}

// What a problem reads.
template <typename Real>
void prefetch_inputs(const View<Real>& view, std::int64_t stream, std::int64_t head) {
  if (view.window > kShortWindow) {
    return;
  }
  for (const Part<Real>& part : view.parts) {
    prefetch<false>(part.data + stream * part.stride + head * view.width, 2 * part.length,
                    view.row(), view.width);
  }
  prefetch<false>(view.queries + view.query_at(stream, head), view.segment, view.row(), view.width);
}

template <typename Real>
class Forward {
 public:
  Forward(const View<Real>& view, const PositionPanels<Real>& positions, Real* probabilities,
          Real* sums, VectorVersion version)
      : view_(view),
        position_columns_(positions),
        probabilities_(probabilities),
        sums_(sums),
        version_(version),
        scratch_(view),
        key_columns_(scratch_.take(scratch_.columns)),
        values_(scratch_.take(scratch_.keys)),
        content_(scratch_.take(scratch_.rows)),
        position_(scratch_.take(scratch_.rows)),
        scores_(scratch_.take(scratch_.scores)),
        by_row_(scratch_.take(scratch_.scores)),
        factors_(scratch_.take(scratch_.scores)) {}

  void run(std::int64_t stream, std::int64_t head) {
    for (std::int64_t first = 0; first < std::min(view_.segment, view_.dilation(head)); ++first) {
      const Problem<Real> problem(view_, stream, head, first);
      find_rows(problem, scratch_);
      Packing<Real> packing;
      packing.rows = scratch_.key_rows.data();
      packing.count = problem.keys;
      packing.width = view_.width;
      packing.to = key_columns_;
      pack_columns_in(version_, &packing);
      packing.offset = view_.row();
      packing.to = values_;
      Panels<Real> values = Panels<Real>::packed(values_, problem.keys);
      if (problem.has_rows_in_place(problem.queries)) {
        values = Panels<Real>::in_place(scratch_.key_rows.front() + view_.row(),
                                        problem.step * 2 * view_.row());
      } else {
        pack_rows_in(version_, &packing);
      }
      for (std::int64_t begin = 0; begin < problem.queries; begin += view_.block()) {
        run_block(problem, begin, std::min(view_.block(), problem.queries - begin), values);
      }
    }
  }

 private:
  void run_block(const Problem<Real>& problem, std::int64_t begin, std::int64_t count,
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
      rows.shift = problem.shift() - begin;
    }
    if (view_.kept != nullptr) {
      rows.factor_stride = find_factors(problem, begin, count, version_, factors_);
      rows.factors = factors_;
    }
    if (probabilities_ != nullptr) {
      rows.probabilities = probabilities_ + problem.kept_at(begin);
      rows.probability_stride = view_.kept_row() * problem.step;
    }
    softmax_rows_in(version_, &rows);

    SmallProduct<Real> product;
    product.rows = count;
    product.columns = view_.width;
    product.inner = problem.keys;
    product.a = scores_;
    product.a_row = scratch_.score_stride;
    product.b = values;
    product.c = sums_ + problem.query_at(begin);
    product.c_row = problem.step * view_.row();
    product.column_band = Band::all(view_.width);
    product.inner_band = rows.seen;
    multiply_in(version_, &product);
  }

  // `queries` [count, width] by each of the columns.
  void multiply_scores(const Real* queries, std::int64_t count, const Real* columns,
                       std::int64_t column_count, const Band& seen, Real* scores) {
    SmallProduct<Real> product;
    product.rows = count;
    product.columns = column_count;
    product.inner = view_.width;
    product.a = queries;
    product.a_row = view_.width;
    product.b = Panels<Real>::packed(columns, view_.width);
    product.c = scores;
    product.c_row = scratch_.score_stride;
    product.padded = true;
    product.column_band = seen;
    product.inner_band = Band::all(view_.width);
    multiply_in(version_, &product);
  }

  const View<Real>& view_;
  const PositionPanels<Real>& position_columns_;
  Real *probabilities_, *sums_;
  VectorVersion version_;
  Scratch<Real> scratch_;
  Real *key_columns_, *values_, *content_, *position_, *scores_, *by_row_, *factors_;
};

// Where the gradients of one group of streams go. Positions [window, width] and biases [width] are
// those of the head; the others are as in the input.
template <typename Real>
struct GradientView {
  Real *queries, *keys_values;
  Real *positions, *content_bias, *position_bias;
};

template <typename Real>
class Backward {
 public:
  Backward(const View<Real>& view, const PositionPanels<Real>& positions, const Real* probabilities,
           const Real* sums_gradient, VectorVersion version)
      : view_(view),
        positions_(positions),
        probabilities_(probabilities),
        sums_gradient_(sums_gradient),
        version_(version),
        scratch_(view),
        value_columns_(scratch_.take(scratch_.columns)),
        keys_(scratch_.take(scratch_.keys)),
        sums_(scratch_.take(scratch_.rows)),
        content_(scratch_.take(scratch_.rows)),
        position_(scratch_.take(scratch_.rows)),
        content_gradient_(scratch_.take(scratch_.rows)),
        position_gradient_(scratch_.take(scratch_.rows)),
        gradients_(scratch_.take(scratch_.scores, view.block() + kMargin)),
        weights_(scratch_.take(scratch_.scores)),
        factors_(scratch_.take(scratch_.scores)) {}

  void run(std::int64_t stream, std::int64_t head, const GradientView<Real>& out) {
    Real* keys_values =
        out.keys_values + stream * view_.window * 2 * view_.row() + head * view_.width;
    if (view_.window <= kShortWindow) {
      prefetch<true>(keys_values, 2 * view_.window, view_.row(), view_.width);
    }
    // Keys of a dilation that no query has.
    for (std::int64_t residue = view_.segment; residue < view_.dilation(head); ++residue) {
      clear(keys_values, (view_.window - view_.segment + residue) % view_.dilation(head),
            view_.window, view_.dilation(head));
    }
    for (std::int64_t first = 0; first < std::min(view_.segment, view_.dilation(head)); ++first) {
      const Problem<Real> problem(view_, stream, head, first);
      find_rows(problem, scratch_);
      scratch_.gradient_rows.clear();
      for (std::int64_t query = 0; query < problem.queries; ++query) {
        scratch_.gradient_rows.push_back(sums_gradient_ + problem.query_at(query));
      }
      Packing<Real> packing;
      packing.rows = scratch_.key_rows.data();
      packing.count = problem.keys;
      packing.width = view_.width;
      packing.to = keys_;
      Panels<Real> keys = Panels<Real>::packed(keys_, problem.keys);
      if (problem.has_rows_in_place(problem.queries)) {
        keys = Panels<Real>::in_place(scratch_.key_rows.front(), problem.step * 2 * view_.row());
      } else {
        pack_rows_in(version_, &packing);
      }
      packing.offset = view_.row();
      packing.to = value_columns_;
      pack_columns_in(version_, &packing);
      for (std::int64_t begin = 0; begin < problem.queries; begin += view_.block()) {
        run_block(problem, begin, std::min(view_.block(), problem.queries - begin), keys, out,
                  keys_values + problem.first_key * 2 * view_.row());
      }
    }
  }

 private:
  // `keys_values`: the gradients of the problem's first key.
  void run_block(const Problem<Real>& problem, std::int64_t begin, std::int64_t count,
                 const Panels<Real>& key_panels, const GradientView<Real>& out, Real* keys_values) {
    find_score_gradients(problem, begin, count);
    const Real* const* queries = scratch_.query_rows.data() + begin;
    Panels<Real> sums = Panels<Real>::packed(sums_, count);
    if (problem.has_rows_in_place(problem.keys)) {
      sums = Panels<Real>::in_place(scratch_.gradient_rows[static_cast<std::size_t>(begin)],
                                    problem.step * view_.row());
    } else {
      pack(scratch_.gradient_rows.data() + begin, count, nullptr, sums_);
    }
    pack(queries, count, bias_of(view_.content_bias, problem), content_);

    // Key j is seen by the queries from j - memory to j - memory + farthest.
    Range keys;
    find_range(problem.seen(begin), 0, count, keys);
    // The first block sets what the others add to.
    if (begin == 0) {
      clear(keys_values, 0, keys.begin * problem.step, problem.step);
      clear(keys_values, keys.end * problem.step, problem.keys * problem.step, problem.step);
    }
    SmallProduct<Real> product;
    product.rows = keys.end - keys.begin;
    product.columns = view_.width;
    product.inner = count;
    product.a = weights_ + keys.begin;
    product.a_row = 1;
    product.a_inner = scratch_.score_stride;
    product.b = sums;
    product.c_row = problem.step * 2 * view_.row();
    product.c = keys_values + keys.begin * product.c_row + view_.row();
    product.add = begin > 0;
    const std::int64_t nearest = keys.begin - problem.memory - begin;
    product.column_band = Band::all(view_.width);
    product.inner_band = {nearest, nearest + problem.farthest + 1, 1, 0, count};
    multiply_in(version_, &product);
    product.a = gradients_ + keys.begin;
    product.b = Panels<Real>::packed(content_, count);
    product.c -= view_.row();
    multiply_in(version_, &product);

    if (view_.positions != nullptr) {
      pack(queries, count, bias_of(view_.position_bias, problem), position_);
      add_position_gradients(problem, begin, count, out.positions);
    }
    find_query_gradients(problem, begin, count, key_panels, out);
  }

  // Every step-th key and value from `key` up to `end`.
  void clear(Real* keys_values, std::int64_t key, std::int64_t end, std::int64_t step) {
    for (; key < end; key += step) {
      Real* row = keys_values + key * 2 * view_.row();
      std::fill_n(row, view_.width, Real(0));
      std::fill_n(row + view_.row(), view_.width, Real(0));
    }
  }

  void pack(const Real* const* rows, std::int64_t count, const Real* bias, Real* to) {
    Packing<Real> packing;
    packing.rows = rows;
    packing.count = count;
    packing.width = view_.width;
    packing.bias = bias;
    packing.to = to;
    pack_rows_in(version_, &packing);
  }

  // Fills gradients_ and weights_.
  void find_score_gradients(const Problem<Real>& problem, std::int64_t begin, std::int64_t count) {
    ScoreRows<Real> rows;
    rows.rows = count;
    rows.seen = problem.seen(begin);
    SmallProduct<Real> product;
    product.rows = count;
    product.columns = problem.keys;
    product.inner = view_.width;
    product.a = sums_gradient_ + problem.query_at(begin);
    product.a_row = problem.step * view_.row();
    product.b = Panels<Real>::packed(value_columns_, view_.width);
    product.c = gradients_;
    product.c_row = scratch_.score_stride;
    product.padded = true;
    product.column_band = rows.seen;
    product.inner_band = Band::all(view_.width);
    multiply_in(version_, &product);

    rows.stride = scratch_.score_stride;
    rows.scores = gradients_;
    rows.weights = weights_;
    // Only read in backward.
    rows.probabilities = const_cast<Real*>(probabilities_) + problem.kept_at(begin);
    rows.probability_stride = view_.kept_row() * problem.step;
    rows.scale = view_.scale;
    if (view_.kept != nullptr) {
      rows.factor_stride = find_factors(problem, begin, count, version_, factors_);
      rows.factors = factors_;
    }
    softmax_gradient_rows_in(version_, &rows);
  }

  // The score of query i by row t of the table is that of key t - shift + i: a diagonal.
  void add_position_gradients(const Problem<Real>& problem, std::int64_t begin, std::int64_t count,
                              Real* positions) {
    const std::int64_t shift = problem.shift() - begin;
    const std::int64_t first = std::max(problem.farthest_row(), shift - (count - 1));
    SmallProduct<Real> product;
    product.rows = problem.distances - first;
    product.columns = view_.width;
    product.inner = count;
    product.a = gradients_ + (first - shift);
    product.a_row = 1;
    product.a_inner = scratch_.score_stride + 1;
    product.b = Panels<Real>::packed(position_, count);
    product.c_row = problem.step * view_.width;
    product.c = positions + (view_.window - 1) * view_.width -
                (problem.distances - 1 - first) * product.c_row;
    product.add = true;
    product.column_band = Band::all(view_.width);
    product.inner_band = {shift - first, kFar, -1, 0, count};
    multiply_in(version_, &product);
  }

  void find_query_gradients(const Problem<Real>& problem, std::int64_t begin, std::int64_t count,
                            const Panels<Real>& keys, const GradientView<Real>& out) {
    const std::int64_t width = view_.width, stride = padded<Real>(width);
    SmallProduct<Real> product;
    product.rows = count;
    product.columns = width;
    product.inner = problem.keys;
    product.a = gradients_;
    product.a_row = scratch_.score_stride;
    product.b = keys;
    product.c = content_gradient_;
    product.c_row = stride;
    product.padded = true;
    product.column_band = Band::all(width);
    product.inner_band = problem.seen(begin);
    multiply_in(version_, &product);
    sum_rows_in(version_, static_cast<const Real*>(content_gradient_), stride, count, width,
                out.content_bias);
    if (view_.positions != nullptr) {
      const std::int64_t shift = problem.shift() - begin;
      const std::int64_t first = std::max(problem.farthest_row(), shift - (count - 1));
      product.inner = problem.distances - first;
      product.a = gradients_ + (first - shift);
      product.a_row = scratch_.score_stride + 1;
      product.b = Panels<Real>::packed(positions_.of(problem.head), problem.distances);
      product.b.data += first * kPanel<Real>;
      product.c = position_gradient_;
      product.inner_band = {shift - first, kFar, -1, 0, product.inner};
      multiply_in(version_, &product);
      sum_rows_in(version_, static_cast<const Real*>(position_gradient_), stride, count, width,
                  out.position_bias);
    }
    for (std::int64_t query = 0; query < count; ++query) {
      join_rows_in(version_, static_cast<const Real*>(content_gradient_) + query * stride,
                   view_.positions == nullptr ? static_cast<const Real*>(nullptr)
                                              : position_gradient_ + query * stride,
                   width, out.queries + problem.query_at(begin + query));
    }
  }

  const View<Real>& view_;
  const PositionPanels<Real>& positions_;
  const Real *probabilities_, *sums_gradient_;
  VectorVersion version_;
  Scratch<Real> scratch_;
  Real *value_columns_, *keys_, *sums_, *content_, *position_;
  Real *content_gradient_, *position_gradient_, *gradients_, *weights_, *factors_;
};

template <typename Real>
AttentionResult forward(const AttentionInput& input, bool keep, VectorVersion version) {
  const View<Real> view(input);
  AttentionResult result;
  result.sums = at::empty(input.queries.sizes(), input.queries.options());
  if (keep) {
    result.probabilities =
        at::empty({view.batch, view.heads, view.segment, view.kept_row()}, input.queries.options());
  }
  const PositionPanels<Real> positions =
      pack_positions(view, view.width * view.kept_row(),
                     [&](const Packing<Real>* packing) { pack_columns_in(version, packing); });
  Real* probabilities = keep ? result.probabilities.template data_ptr<Real>() : nullptr;
  Real* sums = result.sums.template data_ptr<Real>();
  at::parallel_for(0, view.batch * view.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Forward<Real> heads(view, positions, probabilities, sums, version);
    for (std::int64_t task = begin; task < end; ++task) {
      if (task + 1 < end) {
        prefetch_inputs(view, (task + 1) / view.heads, (task + 1) % view.heads);
      }
      heads.run(task / view.heads, task % view.heads);
    }
  });
  return result;
}

template <typename Real>
AttentionGradients backward(const AttentionInput& input, const at::Tensor& probabilities,
                            const at::Tensor& sums_gradient, VectorVersion version) {
  const View<Real> view(input);
  const std::int64_t groups = (view.batch + kGroup - 1) / kGroup;
  const auto options = input.queries.options();
  AttentionGradients result;
  result.queries = at::empty(input.queries.sizes(), options);
  result.keys_values = at::empty(input.keys_values.front().sizes(), options);
  // Of every group and head: the gradients of its positions, content bias and position bias.
  const std::int64_t rows = view.window + 2;
  const at::Tensor partial = at::zeros({groups, view.heads, rows, view.width}, options);
  const PositionPanels<Real> positions =
      pack_positions(view, padded<Real>(view.width) * view.most_keys,
                     [&](const Packing<Real>* packing) { pack_rows_in(version, packing); });
  const Real* probability = probabilities.data_ptr<Real>();
  const Real* gradient = sums_gradient.data_ptr<Real>();
  Real* query_gradients = result.queries.data_ptr<Real>();
  Real* key_gradients = result.keys_values.data_ptr<Real>();
  Real* partials = partial.data_ptr<Real>();
  at::parallel_for(0, groups * view.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Backward<Real> heads(view, positions, probability, gradient, version);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t group = task / view.heads, head = task % view.heads;
      Real* of_positions = partials + task * rows * view.width;
      Real* biases = of_positions + view.window * view.width;
      const GradientView<Real> out{query_gradients, key_gradients, of_positions, biases,
                                   biases + view.width};
      const std::int64_t last = std::min(view.batch, (group + 1) * kGroup);
      for (std::int64_t stream = group * kGroup; stream < last; ++stream) {
        if (stream + 1 < last) {
          prefetch_inputs(view, stream + 1, head);
        }
        heads.run(stream, head, out);
      }
    }
  });
  const at::Tensor sum = partial.sum(0);  // [H, window + 2, d_head]
  if (view.positions != nullptr) {
    result.positions = sum.narrow(1, 0, view.window).transpose(0, 1);
  }
  if (view.content_bias != nullptr) {
    result.content_bias = sum.select(1, view.window);
  }
  if (view.position_bias != nullptr) {
    result.position_bias = sum.select(1, view.window + 1);
  }
  return result;
}

}  // namespace

AttentionResult attention_forward(const AttentionInput& input, bool keep, VectorVersion version) {
  return input.queries.scalar_type() == at::kDouble ? forward<double>(input, keep, version)
                                                    : forward<float>(input, keep, version);
}

AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient, VectorVersion version) {
  return input.queries.scalar_type() == at::kDouble
             ? backward<double>(input, probabilities, sums_gradient, version)
             : backward<float>(input, probabilities, sums_gradient, version);
}

}  // namespace ql::nn
