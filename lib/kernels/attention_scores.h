// Computes the scores of a tile of attention, and draws dropout's mask for it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_operands.h"
#include "kernels/attention_problem.h"

namespace ql::kernels::attention {

// Packs the position table by columns.
template <typename Real, typename Number>
PositionPanels<Packed<Number>> pack_position_columns(const View<Real>& view,
                                                     machine::VectorVersion version) {
  Operands<Real, Number> operands(version);
  return pack_positions<Packed<Number>>(view,
                                        operands.depth(view.width) * padded<Real>(view.most_keys),
                                        [&](const Packing<Real>& packing, Packed<Number>* to) {
                                          operands.pack_columns(packing, to);
                                        });
}

// Computes the scores of one problem (AttentionProblem) after the other, for the forward pass and
// again for the backward pass. The letters u, v and r are explained in kernels/attention.h. With
// c = 1 / sqrt(d_head), and query i at the window index m + i,
//
//   score_ij = c (q_i + u) . k_j + c (q_i + v) . r_(m+i-j)
//
// The scale c is applied to the queries, because a query usually has fewer elements than a row of
// scores. The second term comes from a matrix product of the queries with the position table, whose
// results are by distance. One row of the tile later, a key's distance is larger by one, so the
// product's rows are added to the tile along its diagonals.
template <typename Real, typename Number>
class TileScores {
 public:
  using Element = Packed<Number>;

  // If `probabilities` are given (AttentionResult), no scores are computed.
  TileScores(const View<Real>& view, const PositionPanels<Packed<Number>>& positions,
             const Real* probabilities, machine::VectorVersion version)
      : view_(view), positions_(positions), probabilities_(probabilities), version_(version) {
    if (!view.drops) return;
    // draw_kept() draws a row of the mask for the keys of a tile, or for a window of at most 8/7 as
    // many. The softmax reads complete panels.
    const std::int64_t keys = std::min(view.window, 2 * view.tile_keys());
    kept_.resize(static_cast<std::size_t>((view.tile_queries() + 1) * keys + kPanel<Real>));
    line_.resize(static_cast<std::size_t>(view.window));
  }

  void start(const AttentionProblem<Real>& problem) {
    key_rows_.clear();
    std::int64_t begin = 0, key = problem.first_key;
    const std::int64_t end = problem.first_key + problem.keys * problem.step;
    for (const Part<Real>& part : view_.parts) {
      const std::int64_t at = problem.stream * part.stride + problem.head * view_.width;
      // All problems of a stream and head read the same widened rows.
      if (view_.widens && problem.first == 0) widen(part, at, begin);
      const Real* states = view_.widens ? widened_at(begin) : part.data + at;
      for (; key < std::min(end, begin + part.length); key += problem.step) {
        key_rows_.push_back(states + (key - begin) * 2 * view_.pitch());
      }
      begin += part.length;
    }
    query_rows_.clear();
    for (std::int64_t query = 0; query < problem.queries; ++query) {
      query_rows_.push_back(view_.queries + problem.query_at(query));
    }
  }

  // Prepares `count` queries, beginning with query `begin`, for their tiles.
  void start_queries(const AttentionProblem<Real>& problem, std::int64_t begin,
                     std::int64_t count) {
    if (probabilities_ != nullptr) return;
    const Real* const* queries = query_rows_.data() + begin;
    scale_rows_in(version_, queries, bias_of(view_.content_bias, problem), view_.scale, count,
                  view_.width, operand_row(), content_.begin() + begin * operand_row());
    if (view_.positions == nullptr) return;
    scale_rows_in(version_, queries, bias_of(view_.position_bias, problem), view_.scale, count,
                  view_.width, operand_row(), position_.begin() + begin * operand_row());
  }

  // Prepares a block of keys for its tiles.
  void start_keys(const Range& keys) {
    keys_ = keys;
    if (probabilities_ != nullptr) return;
    operands_.pack_columns({key_rows_.data() + keys.begin, keys.end - keys.begin, view_.width},
                           key_columns_.begin());
  }

  // Returns the scores of the tile, with the mask of its probabilities.
  TileRows<Real> compute(const AttentionProblem<Real>& problem, const Tile& tile) {
    TileRows<Real> rows;
    rows.rows = tile.queries;
    rows.seen = problem.seen(tile);
    rows.stride = sizes_.tile_stride;
    rows.scores = tile_.begin();
    rows.first = tile.first;
    rows.last = tile.last;
    rows.factor = view_.kept_factor;
    if (view_.drops) draw_kept(problem, tile, rows);
    if (probabilities_ != nullptr) {
      rows.probability_stride = padded<Real>(view_.most_keys);
      // The cast is safe: the gradient pass only reads the probabilities.
      rows.probabilities = const_cast<Real*>(probabilities_) +
                           problem.result_at(tile.query) * rows.probability_stride + tile.key;
      return rows;
    }
    SmallProduct<Real, Number> product{tile.queries, tile.keys, view_.width};
    product.a = content_.begin() + tile.query * operand_row();
    product.a_row = operand_row();
    product.b = columns_of(key_columns_.begin(), tile);
    product.c = rows.scores;
    product.c_row = rows.stride;
    product.padded = true;
    product.column_band = rows.seen;
    operands_.multiply(product);
    if (view_.positions != nullptr) {
      product.columns = problem.distances;
      product.a = position_.begin() + tile.query * operand_row();
      product.b =
          Panels<Element>::packed(positions_.of(problem.head), operands_.depth(view_.width));
      product.c = rows.scores - problem.shift(tile);
      product.c_row = rows.stride + 1;
      product.add = true;
      product.column_band = problem.positions_seen(tile);
      operands_.multiply(product);
    }
    return rows;
  }

  // Returns the number of elements from one row of an operand [queries, d_head] to the next.
  std::int64_t operand_row() const { return kDepth<Number> * operands_.depth(view_.width); }
  // Returns the packed columns of the tile's keys; `columns` are those of the block of keys.
  Panels<Element> columns_of(const Element* columns, const Tile& tile) const {
    const std::int64_t depth = operands_.depth(view_.width);
    return Panels<Element>::packed(columns + (tile.key - keys_.begin) * depth, depth);
  }
  // Returns the panels of the block of keys (`offset` 0) or of their values (`offset` pitch()),
  // which are read in place or are packed at `to`.
  Panels<Element> pack_keys(const AttentionProblem<Real>& problem, std::int64_t offset,
                            Element* to) const {
    if constexpr (kDepth<Number> == 1) {
      if (problem.has_rows_in_place(problem.queries)) {
        return Panels<Real>::in_place(key_rows()[0] + offset, problem.step * 2 * view_.pitch());
      }
    }
    const std::int64_t count = keys_.end - keys_.begin;
    operands_.pack_rows({key_rows(), count, view_.width, nullptr, offset}, to);
    return Panels<Element>::packed(to, operands_.depth(count));
  }
  // Returns the rows of the tile's keys; `panels` are those of the block of keys.
  Panels<Element> rows_of(Panels<Element> panels, const Tile& tile) const {
    panels.data += (tile.key - keys_.begin) / kDepth<Number> * panels.row;
    return panels;
  }
  Operands<Real, Number>& operands() { return operands_; }
  // Returns the rows of the block of keys.
  const Real* const* key_rows() const { return key_rows_.data() + keys_.begin; }
  const Real* const* query_rows() const { return query_rows_.data(); }

 private:
  // Widens the keys and values of a part, whose elements for this stream and head begin at `at`.
  // `begin` is the window index of its first state.
  void widen(const Part<Real>& part, std::int64_t at, std::int64_t begin) {
    if constexpr (std::is_same_v<Real, float>) {
      copy_rows_in(version_, part.rounded + at, view_.row(), 2 * part.length, view_.width,
                   widened_at(begin), view_.pitch());
    }
  }
  Real* widened_at(std::int64_t state) { return widened_.begin() + state * 2 * view_.pitch(); }

  // Draws the mask's rows of the tile, and points `rows` to them.
  void draw_kept(const AttentionProblem<Real>& problem, const Tile& tile, TileRows<Real>& rows) {
    const std::int64_t shared = view_.input.queries_per_mask, step = problem.step;
    const std::int64_t masks = view_.segment / shared;
    const std::int64_t head = problem.stream * view_.heads + problem.head;
    // Returns the mask's element for a query of the segment and the tile's first key.
    const auto element = [&](std::int64_t query) {
      return (head * masks + query / shared) * view_.window + problem.first_key + tile.key * step;
    };
    rows.kept = kept_.data();
    rows.kept_stride = tile.keys;
    if (step > 1) {
      for (std::int64_t r = 0; r < tile.queries; ++r) {
        std::uint8_t* kept = kept_.data() + r * tile.keys;
        draw(element(problem.first + (tile.query + r) * step), (tile.keys - 1) * step + 1,
             line_.data());
        for (std::int64_t n = 0; n < tile.keys; ++n) kept[n] = line_[n * step];
      }
      return;
    }
    rows.rows_per_kept = shared;
    rows.first_kept = tile.query % shared;
    const std::int64_t count = (rows.first_kept + tile.queries - 1) / shared + 1;
    if (8 * tile.keys >= 7 * view_.window) {
      // The rows nearly follow one another in the mask. A draw of them all uses nearly every value
      // of the generator; a draw of each row wastes values at its ends, where the generator's
      // groups (kDropoutGroup) have other elements.
      rows.kept_stride = view_.window;
      draw(element(tile.query), (count - 1) * view_.window + tile.keys, kept_.data());
      return;
    }
    for (std::int64_t row = 0; row < count; ++row) {
      draw(element(tile.query + row * shared), tile.keys, kept_.data() + row * tile.keys);
    }
  }

  void draw(std::int64_t first, std::int64_t count, std::uint8_t* kept) {
    const DropoutDraw& draw = view_.input.dropout;
    fill_kept(kept, draw.first + first, count, draw.stream, draw.dropped, version_);
  }

  const View<Real>& view_;
  const PositionPanels<Packed<Number>>& positions_;
  const Real* probabilities_;
  machine::VectorVersion version_;
  Operands<Real, Number> operands_{version_};
  BufferSizes<Real> sizes_{view_};
  Buffer<Element> key_columns_{sizes_.columns};
  Buffer<Real> widened_{view_.widens ? view_.window * 2 * view_.width : 0};
  Buffer<Number> content_{sizes_.rows}, position_{sizes_.rows};
  Buffer<Real> tile_{sizes_.tile, kTileMargin};
  std::vector<const Real*> key_rows_, query_rows_;
  Range keys_;
  std::vector<std::uint8_t> kept_, line_;
};

}  // namespace ql::kernels::attention
