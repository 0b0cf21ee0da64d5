// Holds the parts that both directions of the attention kernel (kernels/attention_kernel.h) share:
// pointers into its tensors, and the problem of one stream and head with its rows, masks and
// memory.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_rows.h"
#include "kernels/dropout_kernel.h"
#include "kernels/small_product.h"
#include "machine/pieces.h"

namespace ql::kernels::attention {

// A block has as many queries as keep their scores in the nearest caches.
inline constexpr std::int64_t kBlockBytes = std::int64_t{1} << 15;
inline constexpr std::int64_t kLeastBlock = 2 * kMostTileRows;

// An end of a Band that does not bound anything.
inline constexpr std::int64_t kFar = std::int64_t{1} << 40;

// Zeros behind (and before) rows of scores. A product that runs along their diagonals reads this
// far beyond their ends. The margin also keeps rows from all beginning at the same place of a
// cache.
inline constexpr std::int64_t kMargin = 16;
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
        sees_all(input.sees_all),
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
  // Estimates the time of one thread for this many products of all queries and all keys.
  double microseconds(double products) const {
    const auto states = static_cast<double>(batch * row());
    return machine::microseconds_of(
        products * states * static_cast<double>(segment) * static_cast<double>(most_keys),
        states * static_cast<double>((2 * window + segment) * std::int64_t{sizeof(Real)}));
  }
  // The head uses as many rows of the position table as a query of it can see keys.
  std::int64_t distances(std::int64_t head) const { return (window - 1) / dilation(head) + 1; }
  // Numbers in a kept row of probabilities.
  std::int64_t kept_row() const { return padded<Real>(most_keys); }
  std::int64_t block() const {
    const std::int64_t rows = kBlockBytes / static_cast<std::int64_t>(sizeof(Real)) / kept_row();
    return std::min(segment, std::max(kLeastBlock, rows / kMostTileRows * kMostTileRows));
  }

  std::int64_t batch, segment, window, heads, width, span;
  bool sees_all;
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
  std::int64_t size = 0;  // numbers of a head
  std::vector<Real> data;
  const Real* of(std::int64_t head) const { return data.data() + head * size; }
};

// `kernel` calls pack_rows_in or pack_columns_in.
template <typename Real, typename Kernel>
PositionPanels<Real> pack_positions(const View<Real>& view, std::int64_t size,
                                    const Kernel& kernel) {
  PositionPanels<Real> panels;
  if (view.positions == nullptr) return panels;
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

// Every dilation-th query of a stream and head, from query `first` on, with the keys that these
// queries can see. They make an attention of its own, whose queries and keys are counted from 0.
// Queries that see all keys stand behind the last of them.
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
        memory(in.sees_all ? in.window : (in.window - in.segment + first_query) / step),
        keys(in.sees_all ? in.window : memory + queries),
        first_key(in.sees_all ? 0 : (in.window - in.segment + first_query) % step),
        farthest(in.span > 0 ? in.span - 1 : kFar) {}

  // The keys that each query sees; row 0 of the band is query `begin`.
  Band seen(std::int64_t begin) const {
    return {memory + begin - farthest, memory + begin + 1, 1, 0, keys};
  }
  // Query i meets key j in row shift - i + j of the position table.
  std::int64_t shift() const { return distances - keys + queries - 1; }
  // The row of the farthest distance that any query reads.
  std::int64_t farthest_row() const { return std::max<std::int64_t>(0, distances - 1 - farthest); }
  // The rows of the position table that each query reads; row 0 of the band is query `begin`.
  Band positions_seen(std::int64_t begin) const {
    return {shift() - begin, kFar, -1, farthest_row(), distances};
  }
  const std::uint8_t* kept(std::int64_t query) const {
    return view.kept +
           ((stream * view.heads + head) * view.segment + first + query * step) * view.window +
           first_key;
  }
  // Tells whether a product with so many rows had better read its second matrix in place. Packing
  // it into panels pays only when they are read often. (Keys and values in several parts are not in
  // one place, and an incomplete last panel would be read beyond its end.)
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

// Memory for the problems of one thread. Rows of scores have margins (kMargin). `front` leaves room
// before the first row, where products along diagonals may begin.
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

  // Sizes of the panels of keys, of their columns, of a block's queries, and of a block's scores.
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

// Fills `factors` with those of dropout for `count` queries from `begin` on, and returns their
// stride.
template <typename Real>
std::int64_t find_factors(const Problem<Real>& problem, std::int64_t begin, std::int64_t count,
                          machine::VectorVersion version, Real* factors) {
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

// Reading a window this short takes less time than the memory needs to answer. So its data is asked
// for one problem ahead.
inline constexpr std::int64_t kShortWindow = 64;

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

// Asks for everything that a problem reads.
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
