#include "train/slices.h"

#include <algorithm>

namespace ql::train {
namespace {

// With fewer tokens, a product's packing costs as much as its operations.
constexpr std::int64_t kFewestTokens = 64;

std::vector<RowRange> split(const RowRange& rows, std::int64_t parts) {
  parts = std::clamp<std::int64_t>(parts, 1, rows.count);
  std::vector<RowRange> ranges;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = rows.count * part / parts;
    ranges.push_back({rows.first + first, rows.count * (part + 1) / parts - first});
  }
  return ranges;
}

}  // namespace

std::vector<Slice> split_rows(std::int64_t batch, std::int64_t slices, std::int64_t passes) {
  std::vector<Slice> result;
  for (const RowRange& rows : split({0, batch}, slices)) result.push_back(split(rows, passes));
  return result;
}

std::int64_t choose_slices(std::int64_t batch, std::int64_t segment, int threads) {
  const std::int64_t fewest_rows = (kFewestTokens + segment - 1) / segment;
  const std::int64_t most = std::max<std::int64_t>(1, batch / fewest_rows);
  return std::min(std::max<std::int64_t>(2, threads), most);
}

}  // namespace ql::train
