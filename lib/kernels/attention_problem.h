// Declares the CPU's attention kernel. Also has the code that the forward and the backward pass
// share: the problem of one stream (element of the batch) and head, and the softmax over rows of
// scores.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/dropout_kernel.h"
#include "kernels/small_product.h"
#include "kernels/vector.h"
#include "machine/threads.h"

namespace ql::kernels {

// The kernel computes relative attention and its gradients on the CPU, outside of autograd. It
// computes each stream and head in blocks of queries, by small matrix products
// (kernels/small_product.h), softmax and dropout. A head with dilation d is computed as up to d
// heads without dilation, each with every d-th query and key. Results do not depend on the number
// of threads.

struct AttentionResult {
  at::Tensor sums;  // [batch, segment, H, d_head]
  // Holds the probabilities before dropout [batch, H, segment, keys], for attention_backward(). In
  // a head with dilation d, a row has an element for every d-th state of the window; its other
  // elements are unused. `keys` is window / d for the smallest d of all heads, rounded up so that a
  // row is a multiple of 64 bytes.
  at::Tensor probabilities;
};

// Each gradient has the shape of its input, and is undefined if this input is. The gradient
// `positions` is also undefined if the input holds scores, which are constants, instead of vectors.
struct AttentionGradients {
  at::Tensor queries, keys_values, positions, content_bias, position_bias;
};

// All tensors must be on the CPU and contiguous, with one exception: the tensors of `keys_values`
// may have any stride in the batch dimension, so that elements of the batch may even overlap. All
// tensors except `probability_kept` must be float32, or all must be float64. `probabilities` of the
// result stays undefined unless `keep` is set.
AttentionResult attention_forward(const AttentionInput& input, bool keep,
                                  machine::VectorVersion version = machine::vector_version());

// `keys_values` must have a single part. `sums_gradient` [batch, segment, H, d_head] must be
// contiguous.
AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient,
                                      machine::VectorVersion version = machine::vector_version());

}  // namespace ql::kernels

namespace ql::kernels::attention {

// The scores of a block of queries take at most kBlockBytes, which fit into the first-level cache.
// But a block has at least kLeastBlock queries, unless the segment has fewer.
inline constexpr std::int64_t kBlockBytes = std::int64_t{1} << 15;
inline constexpr std::int64_t kLeastBlock = 2 * kMostTileRows;

// Stands for an unbounded end of a Band.
inline constexpr std::int64_t kFar = std::int64_t{1} << 40;

// This many zeros follow each row of scores. A matrix product along the diagonals of the scores
// also reads up to kMostTileRows - 1 elements before a row, and these must be zeros. The margin
// also keeps the rows from all mapping to the same set of a cache.
inline constexpr std::int64_t kMargin = 16;
static_assert(kMargin >= kMostTileRows);

// Points to the keys and values of `length` states of the window; streams are `stride` elements
// apart.
template <typename Real>
struct Part {
  const Real* data = nullptr;
  std::int64_t length = 0, stride = 0;
};

// Holds pointers to the data of an AttentionInput. The rows of the queries are row() elements
// apart; the rows of the keys, and those of the values, are 2 * row() elements apart.
template <typename Real>
struct View {
  // `of` must outlive the view.
  explicit View(const AttentionInput& of) : input(of) {
    for (const at::Tensor& part : input.keys_values) {
      parts.push_back({part.data_ptr<Real>(), part.size(1), part.stride(0)});
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      most_keys = std::max(most_keys, distances(head));
    }
  }

  const Real* positions_of(std::int64_t dimensions) const {
    const bool given = input.positions.defined() && input.positions.dim() == dimensions;
    return given ? input.positions.data_ptr<Real>() : nullptr;
  }
  std::int64_t row() const { return heads * width; }
  std::int64_t query_at(std::int64_t stream, std::int64_t head) const {
    return stream * segment * row() + head * width;
  }
  std::int64_t dilation(std::int64_t head) const {
    const std::vector<std::int64_t>& dilations = input.reach.dilations;
    return dilations.empty() ? 1 : dilations[static_cast<std::size_t>(head)];
  }
  // Estimates how many microseconds one thread takes for `products` matrix products of all queries
  // with all keys.
  double microseconds(double products) const {
    const auto states = static_cast<double>(batch * row());
    return machine::microseconds_of(
        products * states * static_cast<double>(segment) * static_cast<double>(most_keys),
        states * static_cast<double>((2 * window + segment) * std::int64_t{sizeof(Real)}));
  }
  // Returns how many of the distances 0, d, 2d, ... are shorter than the window, for the head's
  // dilation d. The head has a row of the position table for each of these distances.
  std::int64_t distances(std::int64_t head) const { return (window - 1) / dilation(head) + 1; }
  // Returns the number of elements in a row of the probabilities that are kept for the backward
  // pass.
  std::int64_t kept_row() const { return padded<Real>(most_keys); }
  std::int64_t block() const {
    const std::int64_t rows = kBlockBytes / static_cast<std::int64_t>(sizeof(Real)) / kept_row();
    return std::min(segment, std::max(kLeastBlock, rows / kMostTileRows * kMostTileRows));
  }

  const AttentionInput& input;
  std::int64_t batch = input.queries.size(0), segment = input.queries.size(1);
  std::int64_t heads = input.queries.size(2), width = input.queries.size(3);
  std::int64_t window = input.window(), most_keys = 0;
  std::vector<Part<Real>> parts;
  const Real* queries = input.queries.data_ptr<Real>();
  const Real *positions = positions_of(3), *distance_scores = positions_of(2);
  const Real* content_bias = data_of<Real>(input.content_bias);
  const Real* position_bias = data_of<Real>(input.position_bias);
  const std::uint8_t* kept = data_of<std::uint8_t>(input.probability_kept);
  Real kept_factor = static_cast<Real>(input.kept_factor);
  Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(width)));
};

// Holds the position table of every head, packed by pack_positions(). Row t of a head's table is
// for the distance (distances(head) - 1 - t) * dilation(head).
template <typename Real>
struct PositionPanels {
  std::int64_t size = 0;  // elements per head
  std::vector<Real> data;
  const Real* of(std::int64_t head) const { return data.data() + head * size; }
};

// Packs the position table of every head. `kernel` calls pack_rows_in() or pack_columns_in(). A
// table that has a score instead of a vector for each distance is packed as vectors of one element.
// `size` is the number of elements per head. In the forward pass, softmax_rows() may read up to
// kPanel elements after the scores of a head, so `size` must include room for these elements.
template <typename Real, typename Kernel>
PositionPanels<Real> pack_positions(const View<Real>& view, std::int64_t size,
                                    const Kernel& kernel) {
  PositionPanels<Real> panels;
  const Real* table = view.positions != nullptr ? view.positions : view.distance_scores;
  const std::int64_t width = view.positions != nullptr ? view.width : 1;
  if (table == nullptr) return panels;
  panels.size = size;
  panels.data.resize(static_cast<std::size_t>(view.heads * size));
  std::vector<const Real*> rows;
  for (std::int64_t head = 0; head < view.heads; ++head) {
    rows.clear();
    for (std::int64_t distance = (view.distances(head) - 1) * view.dilation(head); distance >= 0;
         distance -= view.dilation(head)) {
      rows.push_back(table + ((view.window - 1 - distance) * view.heads + head) * width);
    }
    const Packing<Real> packing{rows.data(), view.distances(head), width,
                                panels.data.data() + head * size};
    kernel(&packing);
  }
  return panels;
}

// Describes the attention of the queries `first`, first + d, first + 2d and so on, for one stream
// (element of the batch) and one head with dilation d. The keys are those whose distances to these
// queries are multiples of d. Inside the problem, queries and keys are numbered from 0, and query i
// is at key memory + i. With `sees_all`, all queries come after the last key.
template <typename Real>
struct AttentionProblem {
  // Returns the keys that each query sees. Range r of the band is for query begin + r.
  Band seen(std::int64_t begin) const {
    return {memory + begin - farthest, memory + begin + 1, 1, 0, keys};
  }
  // Returns `shift`: row shift - i + j of the position table belongs to query i and key j.
  std::int64_t shift() const { return distances - keys + queries - 1; }
  // Returns the row of the farthest distance at which a query sees a key.
  std::int64_t farthest_row() const { return std::max<std::int64_t>(0, distances - 1 - farthest); }
  // Returns the rows of the position table that are read for each query. Range r of the band is for
  // query begin + r.
  Band positions_seen(std::int64_t begin) const {
    return {shift() - begin, kFar, -1, farthest_row(), distances};
  }
  const std::uint8_t* kept(std::int64_t query) const {
    return view.kept +
           ((stream * view.heads + head) * view.segment + first + query * step) * view.window +
           first_key;
  }
  // Returns true if a matrix product with this many rows should read its second matrix in place.
  // Packing a matrix into panels pays only if the panels are read often. Keys and values in several
  // parts must be packed, and so must a matrix with an incomplete last panel, which would be read
  // beyond its end.
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
  std::int64_t stream, head, first;
  std::int64_t step = view.dilation(head), distances = view.distances(head);
  std::int64_t queries = (view.segment - first - 1) / step + 1;
  std::int64_t place = view.window - view.segment + first;  // window index of query `first`
  std::int64_t memory = view.input.sees_all ? view.window : place / step;
  std::int64_t keys = view.input.sees_all ? view.window : memory + queries;
  std::int64_t first_key = view.input.sees_all ? 0 : place % step;
  std::int64_t farthest = view.input.reach.span > 0 ? view.input.reach.span - 1 : kFar;
};

// Holds the buffers of one thread for its problems. Each row of scores is followed by kMargin
// zeros. take() puts `front` zeros before the buffer, because the backward pass reads matrices
// along diagonals that may begin before the first row.
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

  // These are in elements. score_stride is the distance between rows of scores. The other members
  // are sizes of buffers:
  //
  //   keys      all keys, or all values, of a problem, packed by rows
  //   columns   all keys, or all values, of a problem, packed by columns
  //   rows      one row [d_head] for each query of a block
  //   scores    the scores of a block of queries
  std::int64_t score_stride, keys, columns, rows, scores;
  std::vector<const Real*> key_rows, query_rows, gradient_rows;

 private:
  std::vector<std::vector<Real>> buffers_;
};

template <typename Real>
void find_rows(const AttentionProblem<Real>& problem, Scratch<Real>& scratch) {
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

// Returns the panels of the problem's keys (`offset` 0) or values (`offset` row()), which are read
// in place or are packed at `to`.
template <typename Real>
Panels<Real> make_panels(const AttentionProblem<Real>& problem, const Scratch<Real>& scratch,
                         std::int64_t offset, machine::VectorVersion version, Real* to) {
  const View<Real>& view = problem.view;
  if (problem.has_rows_in_place(problem.queries)) {
    return Panels<Real>::in_place(scratch.key_rows.front() + offset, problem.step * 2 * view.row());
  }
  const Packing<Real> packing{scratch.key_rows.data(), problem.keys, view.width, to, offset};
  pack_rows_in(version, &packing);
  return Panels<Real>::packed(to, problem.keys);
}

// Fills `factors` with dropout's factors for `count` queries, beginning with query `begin`, and
// returns the row stride of `factors`.
template <typename Real>
std::int64_t find_factors(const AttentionProblem<Real>& problem, std::int64_t begin,
                          std::int64_t count, machine::VectorVersion version, Real* factors) {
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
const Real* bias_of(const Real* biases, const AttentionProblem<Real>& problem) {
  return biases == nullptr ? nullptr : biases + problem.head * problem.view.width;
}

// For a window of at most this many states, the latency of main memory is longer than the transfer.
// The inputs of such a window are therefore prefetched while the thread computes the previous
// stream or head.
inline constexpr std::int64_t kShortWindow = 64;

template <bool kToWrite, typename Real>
void prefetch(const Real* rows, std::int64_t count, std::int64_t stride, std::int64_t width) {
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t n = 0; n < width; n += kPanel<Real>) {
      __builtin_prefetch(rows + row * stride + n, kToWrite ? 1 : 0, 2);
    }
  }
}

// Prefetches queries, keys and values of short windows.
template <typename Real>
void prefetch_inputs(const View<Real>& view, std::int64_t stream, std::int64_t head) {
  if (view.window > kShortWindow) return;
  for (const Part<Real>& part : view.parts) {
    prefetch<false>(part.data + stream * part.stride + head * view.width, 2 * part.length,
                    view.row(), view.width);
  }
  prefetch<false>(view.queries + view.query_at(stream, head), view.segment, view.row(), view.width);
}

}  // namespace ql::kernels::attention

namespace ql::kernels {

// The kernels below run between the matrix products of attention. They compute the softmax of rows
// of scores with dropout, and its gradient. They also scale rows, and add two rows.

// Points to matrices with one row for each of `rows` consecutive queries. The kernels read and
// write blocks of kPanel columns, so each row must have room for a complete last block. Only
// dropout's `factors` need no room between rows. The last block of such a row reads factors of the
// next row, and multiplies them by probabilities that are 0.
template <typename Real>
struct ScoreRows {
  std::int64_t rows = 0;
  Band seen = {};           // for each row, the keys that its query sees; at least one
  std::int64_t stride = 0;  // row stride of `scores` and `weights`
  Real* scores = nullptr;   // forward: content scores; backward: gradients of probabilities
  Real* weights = nullptr;  // backward: output, the probabilities after dropout
  // Forward: the position scores, or null. In row r, element shift - r + j is the score of key j.
  const Real* by_row = nullptr;
  std::int64_t by_row_stride = 0, shift = 0;
  const Real* factors = nullptr;  // dropout's factors, or null
  std::int64_t factor_stride = 0;
  Real* probabilities = nullptr;  // before dropout; forward: null if not kept
  std::int64_t probability_stride = 0;
  Real scale = 1;  // backward: scale of the scores
};

// Sets the elements of a row from `begin` up to `end` to 0. Both must be multiples of kPanel.
template <int kBytes, typename Real>
QL_VECTOR_BODY void clear_panels(Real* row, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const typename Register<Real, kBytes>::Vector zero = {};
  for (std::int64_t j = begin; j < end; j += kSize) store(zero, row + j);
}

// Returns a range of columns that contains every key seen by the rows from `first` to first + count
// - 1. Both ends are multiples of kPanel.
template <typename Real>
QL_VECTOR_BODY Range find_panels(const Band& seen, std::int64_t first, std::int64_t count) {
  const Range keys = find_range(seen, first, count);
  return {keys.begin / kPanel<Real> * kPanel<Real>, padded<Real>(keys.end)};
}

// Replaces in->scores by attention weights, in a range of columns that contains the keys of all
// rows. If row r does not see a key, the key gets the weight 0. For the keys j that row r sees,
// with the position scores `by_row`, their `shift` and dropout's factors f:
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
  const Range all = find_panels<Real>(in->seen, 0, in->rows);
  Integers lanes;
  count_up(0, lanes);
  for (std::int64_t r = 0; r < in->rows; ++r) {
    const Range keys = find_range(in->seen, r, 1), panels = find_panels<Real>(in->seen, r, 1);
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

// Turns `scores`, the gradients g with respect to the probabilities after dropout, into the
// gradients with respect to the scores before the scale is applied. Also sets `weights` to the
// probabilities after dropout. With the probabilities p before dropout and dropout's factors f:
//
//   weights_rj = f_rj p_rj
//   scores_rj  = scale p_rj (f_rj g_rj - sum_n p_rn f_rn g_rn)
template <int kBytes, typename Real>
QL_VECTOR_BODY void softmax_gradient_rows_body(const ScoreRows<Real>* in) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const Range all = find_panels<Real>(in->seen, 0, in->rows);
  for (std::int64_t r = 0; r < in->rows; ++r) {
    const Range panels = find_panels<Real>(in->seen, r, 1);
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

// Sets to[r * width + n] = (rows[r][n] + bias[n]) * scale; a null bias counts as 0.
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
