// Draws a network in time, after the paper's figure 5: places the states, and writes SVG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/context.h"
#include "net/geometry.h"
#include "qlctx_report.h"

namespace ql::ctx {

// A Layout has the places of states in a drawing of a network's dependencies: a row for each stage,
// with the output at the top, and a column for each token. The layout also records which states the
// drawn output depends on.

// In pixels: margins, and the height of a state.
inline constexpr double kLeft = 150, kRight = 165, kTop = 78, kBottom = 124;
inline constexpr double kState = 15;

struct Interval {
  std::int64_t begin = INT64_MAX, end = INT64_MIN;  // tokens, relative to the segment's first
  bool empty() const { return begin >= end; }
};

struct Layout {
  // Lays out the dependencies of the output state at `position` of the segment. Throws Error when
  // there are more states than a drawing can show. `of_row` must outlive this object.
  Layout(const Row& of_row, std::int64_t at_position);

  // Calls visit(first token) for every state of the stage that is in the cone.
  template <typename Visit>
  void each_in_cone(std::size_t stage, const Visit& visit) const {
    for (std::size_t k = 0; k < cone[stage].size(); ++k) {
      for (std::size_t i = 0; i < cone[stage][k].size(); ++i) {
        if (cone[stage][k][i]) {
          visit(net::first_token(stages[stage],
                                 {static_cast<std::int64_t>(k), static_cast<std::int64_t>(i)}));
        }
      }
    }
  }
  // Returns the first token of the oldest state that is kept.
  std::int64_t window_begin(std::size_t stage) const;
  // Returns the first token of a state of the segment or, for an index below 0, of the memory.
  std::int64_t first_token(std::size_t stage, std::int64_t index) const;
  // Returns true when the output depends on that state.
  bool in_cone(std::size_t stage, std::int64_t index) const;
  // Returns the left end of a token, in pixels.
  double x(std::int64_t at) const;

  const Row& row;
  std::int64_t position;
  const std::vector<net::Stage>& stages;
  std::int64_t segment, reach;
  net::Cone cone;
  std::vector<Interval> extents;  // by stage: the cone's tokens
  std::int64_t first = 0;         // the first token of the drawing
  double token = 0;               // width of a token in pixels
  std::vector<double> heights;    // by stage: upper end of the row

 private:
  void check_size() const;
};

// Returns a standalone SVG 1.1 file of the states at every place, in the segment and in memories,
// and the cone of the states that one output state depends on. Tokens run from left to right, every
// row is a place of the network, and a state is as wide as the tokens it stands for. `position` is
// 0 to n_s - 1. Every state of a segment is one element of class "segment", of a memory "memory",
// of a compressed memory "compressed"; those of the cone also have the class "in". Throws Error for
// a network that is too large for a drawing.
std::string draw_svg(const Row& row, std::int64_t position);

}  // namespace ql::ctx
