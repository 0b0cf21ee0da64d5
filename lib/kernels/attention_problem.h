// Declares the CPU's attention kernel. Also has the code that the forward and the backward pass
// share: the problem of one stream (element of the batch) and head, its tiles, and the position
// table.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_tile.h"
#include "kernels/buffer.h"
#include "kernels/dropout_kernel.h"
#include "kernels/product.h"
#include "kernels/small_product.h"
#include "kernels/vector.h"
#include "machine/threads.h"

namespace ql::kernels {

// The kernel computes relative attention and its gradients on the CPU, outside of autograd. It goes
// through each stream and head in tiles, blocks of queries by blocks of keys, by small matrix
// products (kernels/small_product.h), softmax and dropout. Unless the window is short, no tensor
// has an element for every pair of a query and a key: the backward pass computes the scores of a
// tile again (Dao et al.: "FlashAttention", 2022, here with vectors of distances). A head with
// dilation d is computed as up to d heads without dilation, each with every d-th query and key.
// Results do not depend on the number of threads.

struct AttentionResult {
  at::Tensor sums;  // [batch, segment, H, d_head]
  // For attention_backward(): the maximum of the scores of each query, and the inverse of the sum
  // of the exponentials below this maximum [2, batch, H, segment].
  at::Tensor normalizers;
  // For a window of at most kShortWindow states, these are the probabilities before dropout [batch,
  // H, segment, keys], in rows of complete panels. attention_backward() reads them, because to
  // compute short rows of scores again takes longer. Otherwise undefined.
  at::Tensor probabilities;
};

// Each gradient has the shape of its input, and is undefined if this input is.
struct AttentionGradients {
  at::Tensor queries, keys_values, positions, content_bias, position_bias;
};

// Returns true if neither the window nor the segment has more than kShortWindow states.
inline bool is_short(const AttentionInput& input) {
  return std::max(input.window(), input.queries.size(1)) <= kShortWindow;
}

// With `input.rounds`, the operands of products of float32 are rounded to bfloat16.
//
// All tensors must be on the CPU and contiguous, with one exception: the tensors of `keys_values`
// may have any stride in the batch dimension, so that elements of the batch may even overlap. All
// tensors must be float32, or all must be float64, with one exception: beside float32, the tensors
// of `keys_values` may be bfloat16 if is_short() and not `input.rounds`. Then their gradient is
// bfloat16, too. `normalizers` and `probabilities` of the result stay undefined unless `keep` is
// set.
AttentionResult attention_forward(const AttentionInput& input, bool keep,
                                  machine::VectorVersion version = machine::vector_version());

// `keys_values` must have a single part. `result` is that of attention_forward() with `keep`; its
// sums are read only if the window has more than kTileKeys states.
// `sums_gradient` [batch, segment, H, d_head] must be contiguous.
AttentionGradients attention_backward(const AttentionInput& input, const AttentionResult& result,
                                      const at::Tensor& sums_gradient,
                                      machine::VectorVersion version = machine::vector_version());

}  // namespace ql::kernels

namespace ql::kernels::attention {

// A block of keys has at most kTileKeys keys. Longer blocks need fewer additions to the sums of
// values and to the gradients of queries, and the products along diagonals waste less at their
// ends. A block of queries has as many queries as give a tile kTileElements scores, which fit into
// the second-level cache twice, but at least kLeastQueries.
inline constexpr std::int64_t kTileKeys = 512;
inline constexpr std::int64_t kTileElements = 96 * kTileKeys;
inline constexpr std::int64_t kLeastQueries = 4 * kMostTileRows;

// The queries of a stream and head are divided into parts if there are at most half as many streams
// and heads as kLeastTasks, so that several threads have work. There is at most one part for each
// kPartQueries queries of the segment.
inline constexpr std::int64_t kLeastTasks = 8;
inline constexpr std::int64_t kPartQueries = 512;

// Stands for an unbounded end of a Band.
inline constexpr std::int64_t kFar = std::int64_t{1} << 40;

// Points to the keys and values of `length` states of the window, one of `data` and `rounded`;
// streams are `stride` elements apart.
template <typename Real>
struct Part {
  const Real* data = nullptr;
  const Bfloat16Bits* rounded = nullptr;
  std::int64_t length = 0, stride = 0;
};

// Holds pointers to the data of an AttentionInput. The rows of the queries are row() elements
// apart; the rows of the keys, and those of the values, are 2 * row() elements apart. Rounded keys
// and values are widened first, for one stream and head at a time; then the rows that are computed
// with are pitch() elements apart.
//
// In a short window, the latency of main memory is longer than the transfer of the window's states,
// so its inputs are prefetched while the thread computes the previous stream or head.
template <typename Real>
struct View {
  // `of` must outlive the view.
  explicit View(const AttentionInput& of) : input(of) {
    for (const at::Tensor& part : input.keys_values) {
      parts.push_back({nullptr, nullptr, part.size(1), part.stride(0)});
      if (widens) {
        parts.back().rounded = bfloat16_bits(part);
      } else {
        parts.back().data = part.data_ptr<Real>();
      }
    }
    if (widens && (!std::is_same_v<Real, float> || !is_short(input) || input.rounds)) {
      throw std::logic_error("only short windows of float32 may have keys of bfloat16");
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      most_keys = std::max(most_keys, distances(head));
    }
  }

  std::int64_t row() const { return heads * width; }
  // Returns the distance between the rows of a state's key and its value, as they are computed
  // with.
  std::int64_t pitch() const { return widens ? width : row(); }
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
  std::int64_t tile_keys() const {
    return std::clamp(padded<Real>(most_keys), kPanel<Real>, kTileKeys);
  }
  // Returns the most queries of a tile.
  std::int64_t tile_queries() const {
    const std::int64_t rows = kTileElements / tile_keys() / kMostTileRows * kMostTileRows;
    return std::min(segment, std::max(kLeastQueries, rows));
  }
  // Returns into how many parts the queries of a stream and head are divided. The bounds of the
  // tiles depend on it, and so do the last bits of a result.
  std::int64_t query_parts() const {
    const std::int64_t most = std::max<std::int64_t>(1, segment / kPartQueries);
    const std::int64_t tasks = batch_invariant ? heads : std::max<std::int64_t>(1, batch * heads);
    return std::clamp<std::int64_t>(kLeastTasks / tasks, 1, most);
  }

  const AttentionInput& input;
  std::int64_t batch = input.queries.size(0), segment = input.queries.size(1);
  std::int64_t heads = input.queries.size(2), width = input.queries.size(3);
  std::int64_t window = input.window(), most_keys = 0;
  bool widens = input.keys_values.front().scalar_type() == at::kBFloat16;
  std::vector<Part<Real>> parts;
  const Real* queries = input.queries.data_ptr<Real>();
  const Real* positions = data_of<Real>(input.positions);
  const Real* content_bias = data_of<Real>(input.content_bias);
  const Real* position_bias = data_of<Real>(input.position_bias);
  bool drops = input.dropout.dropped > 0, keeps_probabilities = window <= kShortWindow;
  bool batch_invariant = BatchInvariant::live();
  Real kept_factor = static_cast<Real>(input.dropout.factor());
  Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(width)));
};

// Points to the elements of an AttentionResult; null where it has none.
template <typename Real>
struct ResultView {
  explicit ResultView(const AttentionResult& result) {
    if (result.sums.defined()) sums = result.sums.data_ptr<Real>();
    if (!result.normalizers.defined()) return;
    maxima = result.normalizers.data_ptr<Real>();
    inverses = maxima + result.normalizers.stride(0);
    if (result.probabilities.defined()) probabilities = result.probabilities.data_ptr<Real>();
  }
  Real *sums = nullptr, *maxima = nullptr, *inverses = nullptr, *probabilities = nullptr;
};

// Holds a vector for each head and distance, packed by pack_positions(). Row t of a head's table is
// for the distance (distances(head) - 1 - t) * dilation(head).
template <typename Element>
struct PositionPanels {
  std::int64_t size = 0;  // elements per head
  Buffer<Element> data;
  const Element* of(std::int64_t head) const { return data.begin() + head * size; }
};

// Packs the position table of every head into `size` elements per head. `pack` calls a function
// that packs `packing`, except for its `to`, at the address that it gets.
template <typename Element, typename Real, typename Pack>
PositionPanels<Element> pack_positions(const View<Real>& view, std::int64_t size,
                                       const Pack& pack) {
  PositionPanels<Element> panels;
  if (view.positions == nullptr) return panels;
  panels.size = size;
  panels.data = Buffer<Element>(view.heads * size);
  std::vector<const Real*> rows;
  for (std::int64_t head = 0; head < view.heads; ++head) {
    rows.clear();
    for (std::int64_t distance = (view.distances(head) - 1) * view.dilation(head); distance >= 0;
         distance -= view.dilation(head)) {
      rows.push_back(view.positions +
                     ((view.window - 1 - distance) * view.heads + head) * view.width);
    }
    pack(Packing<Real>{rows.data(), view.distances(head), view.width},
         panels.data.begin() + head * size);
  }
  return panels;
}

// Describes a block of queries by a block of keys of a problem.
struct Tile {
  std::int64_t query = 0, queries = 0;  // the first query, and how many
  std::int64_t key = 0, keys = 0;       // the first key, a multiple of kPanel, and how many
  bool first = true, last = true;       // whether it is the first or the last tile of these queries
};

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
  // Returns the columns of the tile that each of its queries sees.
  Band seen(const Tile& tile) const {
    Band band = seen(tile.query);
    band.low -= tile.key;
    band.high -= tile.key;
    band.most = std::min(keys - tile.key, tile.keys);
    return band;
  }
  // Returns the row of the position table for the first query and key of the tile. Row shift - r +
  // n belongs to row r and column n.
  std::int64_t shift(const Tile& tile) const {
    return distances - keys + queries - 1 - tile.query + tile.key;
  }
  // Returns the rows of the position table for each query of the tile.
  Band positions_seen(const Tile& tile) const {
    return {shift(tile), shift(tile) + tile.keys, -1, farthest_row(), distances};
  }
  // Returns the row of the farthest distance at which a query sees a key.
  std::int64_t farthest_row() const { return std::max<std::int64_t>(0, distances - 1 - farthest); }
  // Calls work(keys) for the blocks of keys, which have nearly the same size.
  template <typename Work>
  void for_key_blocks(const Work& work) const {
    const std::int64_t blocks = (keys + kTileKeys - 1) / kTileKeys;
    const std::int64_t size = padded<Real>((keys + blocks - 1) / blocks);
    for (std::int64_t key = 0; key < keys; key += size) {
      work(Range{key, std::min(key + size, keys)});
    }
  }
  // Calls work(tile) for the blocks of a part's queries that see a key of the block `of_keys`.
  template <typename Work>
  void for_tiles(std::int64_t part, const Range& of_keys, const Work& work) const {
    for_blocks(part, [&](std::int64_t begin, std::int64_t count) {
      const Range range = find_range(seen(begin), 0, count);
      const std::int64_t key = std::max(of_keys.begin, range.begin / kPanel<Real> * kPanel<Real>);
      const std::int64_t end = std::min(of_keys.end, range.end);
      if (key >= end) return;
      work(Tile{begin, count, key, end - key, range.begin >= of_keys.begin,
                range.end <= of_keys.end});
    });
  }
  // Returns true if a query of the part sees a key of the block `of_keys`.
  bool has_tiles(std::int64_t part, const Range& of_keys) const {
    bool any = false;
    for_tiles(part, of_keys, [&any](const Tile&) { any = true; });
    return any;
  }
  // Returns into how many blocks the queries of a part are divided.
  std::int64_t blocks(std::int64_t part) const {
    const std::int64_t count =
        queries * (part + 1) / view.query_parts() - queries * part / view.query_parts();
    return (count + view.tile_queries() - 1) / view.tile_queries();
  }
  // Calls work(begin, count) for the blocks of queries of a part (View::query_parts()). The blocks
  // have nearly the same size.
  template <typename Work>
  void for_blocks(std::int64_t part, const Work& work) const {
    std::int64_t begin = queries * part / view.query_parts();
    for (std::int64_t left = blocks(part); left > 0; --left) {
      const std::int64_t end = queries * (part + 1) / view.query_parts();
      const std::int64_t count = (end - begin + left - 1) / left;
      work(begin, count);
      begin += count;
    }
  }
  // Returns true if a matrix product with this many rows should read its second matrix in place.
  // Packing a matrix into panels pays only if the panels are read often. Keys and values in several
  // parts must be packed, and so must a matrix with an incomplete last panel, which would be read
  // beyond its end.
  bool has_rows_in_place(std::int64_t rows) const {
    return rows <= 2 * kMostTileRows && view.width % kPanel<Real> == 0 && view.parts.size() == 1;
  }
  std::int64_t query_at(std::int64_t query) const {
    return view.query_at(stream, head) + (first + query * step) * view.row();
  }

  // Returns the index of a query in AttentionResult::normalizers and `probabilities`, where the
  // queries of a problem follow one another.
  std::int64_t result_at(std::int64_t query) const {
    const std::int64_t before =
        first * (view.segment / step) + std::min(first, view.segment % step);
    return (stream * view.heads + head) * view.segment + before + query;
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

// Has the sizes of the buffers of one thread, in elements:
//
//   tile_stride  the distance between rows of a tile
//   tile         a tile; the margin of its first row is in front of the buffer
//   rows         one row [d_head] for each query
//   keys         a block of keys, or of values, packed by rows
//   columns      a block of keys, or of values, packed by columns
template <typename Real>
struct BufferSizes {
  explicit BufferSizes(const View<Real>& view)
      : tile_stride(view.tile_keys() + kTileMargin),
        tile(view.tile_queries() * tile_stride),
        rows(view.segment * padded<Real>(view.width)),
        keys(padded<Real>(view.width) * view.tile_keys()),
        columns(view.width * view.tile_keys()) {}
  std::int64_t tile_stride, tile, rows, keys, columns;
};

template <typename Real>
const Real* bias_of(const Real* biases, const AttentionProblem<Real>& problem) {
  return biases == nullptr ? nullptr : biases + problem.head * problem.view.width;
}

template <bool kToWrite, typename Number>
void prefetch(const Number* rows, std::int64_t count, std::int64_t stride, std::int64_t width) {
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t n = 0; n < width; n += kPanel<Number>) {
      __builtin_prefetch(rows + row * stride + n, kToWrite ? 1 : 0, 2);
    }
  }
}

// Prefetches queries, keys and values of short windows.
template <typename Real>
void prefetch_inputs(const View<Real>& view, std::int64_t stream, std::int64_t head) {
  if (view.window > kShortWindow) return;
  for (const Part<Real>& part : view.parts) {
    const std::int64_t at = stream * part.stride + head * view.width;
    if (view.widens) {
      prefetch<false>(part.rounded + at, 2 * part.length, view.row(), view.width);
    } else {
      prefetch<false>(part.data + at, 2 * part.length, view.row(), view.width);
    }
  }
  prefetch<false>(view.queries + view.query_at(stream, head), view.segment, view.row(), view.width);
}

}  // namespace ql::kernels::attention
