#include "net/document_reset.h"

#include <algorithm>

namespace ql::net {

MemoryCover memory_cover(const Stage& stage) {
  return {stage.granularity, (stage.segment - stage.shift) * stage.granularity, stage.shift, 1};
}

MemoryCover compressed_memory_cover(const Geometry& geometry) {
  const std::int64_t of_step = geometry.lengths.segment / geometry.rate;
  return {geometry.rate, geometry.lengths.memory, of_step, spreads(geometry.pool) ? of_step : 1};
}

std::int64_t document_states(const MemoryCover& cover, std::int64_t age) {
  const std::int64_t covered = std::max<std::int64_t>(0, age - cover.behind);
  const std::int64_t tokens = cover.granularity * cover.together;
  const std::int64_t covering = (covered / tokens + (covered % tokens != 0)) * cover.together;
  // Zeros that a step inside the document computed on, as the first step of a stream does, are the
  // document's own.
  const std::int64_t steps = age / (cover.shift * cover.granularity);
  return std::max(covering, steps * cover.shift);
}

}  // namespace ql::net
