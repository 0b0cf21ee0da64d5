#include "eval/columns.h"

#include <algorithm>
#include <stdexcept>

#include "net/dependency.h"

namespace ql::eval {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

std::int64_t warm_up_segments(const net::Geometry& geometry) {
  if (geometry.keeps_most_used()) return kWholeStream;
  const std::vector<std::int64_t> oldest = net::oldest_dependencies(geometry);
  const std::int64_t tokens = -*std::min_element(oldest.begin(), oldest.end());
  return tokens > 0 ? divide_up(tokens, geometry.lengths.segment) : 0;
}

ColumnPlan plan_columns(std::int64_t segments, std::int64_t warm_up, std::int64_t batch) {
  if (segments < 1 || warm_up < 0 || batch < 1) {
    throw std::logic_error("plan_columns: a negative length, an empty stream or no column");
  }
  ColumnPlan plan;
  // With B columns of equal length T the stream has T + (B - 1) (T - warm_up) segments. T exceeds
  // warm_up, so every column but the first starts behind its whole warm-up.
  plan.steps = segments <= warm_up ? segments : warm_up + divide_up(segments - warm_up, batch);
  plan.columns.push_back({0, 0, plan.steps});
  while (plan.columns.back().end < segments) {
    const std::int64_t start = plan.columns.back().end;
    plan.columns.push_back(
        {start - warm_up, start, std::min(segments, start - warm_up + plan.steps)});
  }
  return plan;
}

}  // namespace ql::eval
