// Places the states of a network in a drawing of its dependencies: a row for each stage, the output
// at the top, and a column for each token. Finds which states the drawn output depends on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/cone.h"
#include "net/inputs.h"
#include "qlctx_report.h"

namespace ql::ctx {

// Margins, and the height of a state, in pixels.
inline constexpr double kLeft = 150, kRight = 165, kTop = 78, kBottom = 124;
inline constexpr double kState = 15;

struct Interval {
  std::int64_t begin = INT64_MAX, end = INT64_MIN;  // tokens, relative to the segment's first
  bool empty() const { return begin >= end; }
};

struct Layout {
  // Lays out the states of the network and finds those that the output state at `at_position` of
  // the segment depends on. Throws Error where there are so many states that a drawing shows
  // nothing any more. `of_row` must outlive this object.
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
  // The first token of the oldest state that is kept.
  std::int64_t window_begin(std::size_t stage) const;
  // The token from which a state of the segment or, below 0, of the memory begins.
  std::int64_t first_token(std::size_t stage, std::int64_t index) const;
  // Tells whether the output depends on that state.
  bool in_cone(std::size_t stage, std::int64_t index) const;
  // The left end of a token, in pixels.
  double x(std::int64_t at) const;

  const Row& row;
  std::int64_t position;
  const std::vector<net::Stage>& stages;
  std::int64_t segment, reach;
  net::Cone cone;
  std::vector<Interval> extents;  // of the cone, by stage
  std::int64_t first = 0;         // the first token of the drawing
  double token = 0;               // its width
  std::vector<double> heights;    // the upper end of every stage's row

 private:
  void check_size() const;
};

}  // namespace ql::ctx
