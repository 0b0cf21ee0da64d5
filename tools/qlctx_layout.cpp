#include "qlctx_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "net/context.h"

namespace ql::ctx {
namespace {

// Beyond these a drawing shows nothing any more.
constexpr std::int64_t kMostTokens = 1024;
constexpr std::size_t kMostRows = 64;

// Pixels.
constexpr double kRowDistance = 31, kScaleDistance = 20;
constexpr double kTokensWidth = 1000, kSmallestToken = 2.5, kLargestToken = 30;

}  // namespace

Layout::Layout(const Row& of_row, std::int64_t at_position)
    : row(of_row),
      position(at_position),
      stages(row.geometry.stages),
      segment(row.geometry.lengths.segment),
      reach(net::exact_lengths(row.geometry)[static_cast<std::size_t>(position)]) {
  check_size();
  cone = net::cone_of(row.geometry, position);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    Interval& extent = extents.emplace_back();
    each_in_cone(stage, [&](std::int64_t begin) {
      extent.begin = std::min(extent.begin, begin);
      extent.end = std::max(extent.end, begin + stages[stage].granularity);
    });
    first = std::min({first, extent.begin, window_begin(stage)});
  }
  token = std::clamp(kTokensWidth / static_cast<double>(segment - first), kSmallestToken,
                     kLargestToken);
  double y = kTop;
  for (std::size_t stage = stages.size(); stage-- > 0;) {
    heights.push_back(y);
    const bool new_scale = stages[stage].source == net::Stage::Source::kCompressed ||
                           stages[stage].source == net::Stage::Source::kAveraged;
    y += kRowDistance + (new_scale ? kScaleDistance : 0);
  }
  std::reverse(heights.begin(), heights.end());
}

void Layout::check_size() const {
  std::int64_t states = 0;
  for (const net::Stage& stage : stages) {
    states = std::max(states, stage.granularity * (stage.segment + stage.memory) +
                                  stage.compressed_memory * row.geometry.rate);
  }
  const std::int64_t tokens = std::max(reach + segment - position, states);
  if (tokens > kMostTokens || stages.size() > kMostRows) {
    throw Error("--format svg",
                fmt::format("{} tokens and {} rows of states are too many for a drawing, which "
                            "shows {} and {} at most",
                            tokens, stages.size(), kMostTokens, kMostRows),
                "draw a network of the same kind with shorter lengths or fewer layers");
  }
}

std::int64_t Layout::window_begin(std::size_t stage) const {
  const net::Stage& here = stages[stage];
  return first_token(stage, -here.memory - here.compressed_memory * row.geometry.rate);
}

std::int64_t Layout::first_token(std::size_t stage, std::int64_t index) const {
  return net::first_token(stages[stage], net::origin_of(stages[stage], index));
}

bool Layout::in_cone(std::size_t stage, std::int64_t index) const {
  const net::Origin origin = net::origin_of(stages[stage], index);
  const auto step = static_cast<std::size_t>(origin.steps_back);
  return step < cone[stage].size() && cone[stage][step][static_cast<std::size_t>(origin.index)];
}

double Layout::x(std::int64_t at) const { return kLeft + static_cast<double>(at - first) * token; }

}  // namespace ql::ctx
