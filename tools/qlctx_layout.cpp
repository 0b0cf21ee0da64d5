#include "qlctx_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ql::ctx {
namespace {

// Beyond these a drawing shows nothing any more.
constexpr std::int64_t kMostTokens = 1024;
constexpr std::size_t kMostRows = 64;

// Pixels.
constexpr double kRowDistance = 31, kScaleDistance = 20;
constexpr double kTokensWidth = 1000, kSmallestToken = 2.5, kLargestToken = 30;

}  // namespace

void Interval::add(std::int64_t first, std::int64_t past_last) {
  begin = std::min(begin, first);
  end = std::max(end, past_last);
}

Layout::Layout(const Row& of_row, std::int64_t at_position)
    : row(of_row),
      position(at_position),
      places(net::places(row.geometry)),
      segment(row.geometry.lengths.segment),
      reach(position - net::oldest_dependencies(row.geometry)[static_cast<std::size_t>(position)]) {
  check_size();
  cone = net::cone_of(row.geometry, position);
  for (std::size_t place = 0; place < places.size(); ++place) {
    extents.push_back(extent_of(place));
    first = std::min({first, extents.back().begin, window_begin(place)});
  }
  token = std::clamp(kTokensWidth / static_cast<double>(segment - first), kSmallestToken,
                     kLargestToken);
  double y = kTop;
  for (std::size_t place = places.size(); place-- > 0;) {
    heights.push_back(y);
    const bool new_scale = places[place].source == net::Place::Source::kCompressed ||
                           places[place].source == net::Place::Source::kAveraged;
    y += kRowDistance + (new_scale ? kScaleDistance : 0);
  }
  std::reverse(heights.begin(), heights.end());
}

void Layout::check_size() const {
  std::int64_t states = 0;
  for (const net::Place& place : places) {
    states = std::max(states, place.granularity * (place.segment + place.memory) +
                                  place.compressed_memory * row.geometry.rate);
  }
  const std::int64_t tokens = std::max(reach + segment - position, states);
  if (tokens > kMostTokens || places.size() > kMostRows) {
    throw Error("--format svg",
                fmt::format("{} tokens and {} rows of states are too many for a drawing, which "
                            "shows {} and {} at most",
                            tokens, places.size(), kMostTokens, kMostRows),
                "draw a network of the same kind with shorter lengths or fewer layers");
  }
}

Interval Layout::extent_of(std::size_t place) const {
  Interval extent;
  each_in_cone(place, [&](std::int64_t first_token) {
    extent.add(first_token, first_token + places[place].granularity);
  });
  return extent;
}

std::int64_t Layout::window_begin(std::size_t place) const {
  const net::Place& here = places[place];
  return net::first_token(here, 0, -here.memory - here.compressed_memory * row.geometry.rate);
}

bool Layout::in_cone(std::size_t place, std::int64_t steps_back, std::int64_t index) const {
  const auto& steps = cone[place];
  return static_cast<std::size_t>(steps_back) < steps.size() &&
         steps[static_cast<std::size_t>(steps_back)][static_cast<std::size_t>(index)];
}

bool Layout::memory_in_cone(std::size_t place, std::int64_t age) const {
  const std::int64_t shift = places[place].shift;
  return in_cone(place, 1 + age / shift, shift - 1 - age % shift);
}

double Layout::x(std::int64_t at) const { return kLeft + static_cast<double>(at - first) * token; }

}  // namespace ql::ctx
