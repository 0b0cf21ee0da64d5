#include "net/window.h"

#include <algorithm>

namespace ql::net {

StateRun states_at(const Geometry& geometry, const ScaleGeometry& scale, std::int64_t index) {
  const std::int64_t number = -scale.memory - index;  // of a compressed state, 1 is the newest
  if (number <= 0) {
    return {index, 1, 1};
  }
  const std::int64_t rate = geometry.rate, of_step = scale.segment / rate;
  const std::int64_t steps = (number - 1) / of_step + 1;  // back to the one it was made in
  const std::int64_t begin = -scale.memory - steps * scale.segment;  // of what left then
  const std::int64_t place = steps * of_step - number;               // among what it became
  switch (geometry.pool) {
    case Pool::kDilatedConvolution:
      return {begin + place, rate, of_step};
    case Pool::kMostUsed:  // any that has so many before and behind it
      return {begin + place, scale.segment - of_step + 1, 1};
    default:
      return {begin + place * rate, rate, 1};
  }
}

std::vector<std::int64_t> distinct_dilations(const AttentionReach& reach) {
  std::vector<std::int64_t> dilations = reach.dilations;
  if (dilations.empty()) {
    dilations.push_back(1);
  }
  std::sort(dilations.begin(), dilations.end());
  dilations.erase(std::unique(dilations.begin(), dilations.end()), dilations.end());
  return dilations;
}

std::int64_t keys_seen(const Geometry& geometry, const ScaleGeometry& scale, std::int64_t index,
                       std::int64_t dilation) {
  const std::int64_t all = (index + scale.memory + geometry.compressed_memory) / dilation + 1;
  return scale.reach.limited() ? std::min(scale.reach.span, all) : all;
}

}  // namespace ql::net
