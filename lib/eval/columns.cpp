#include "eval/columns.h"

#include <algorithm>
#include <stdexcept>

#include "net/dependency.h"

namespace ql::eval {
namespace {

constexpr std::int64_t kAutomaticColumns = 64;
constexpr std::int64_t kAutomaticOverhead = 8;  // one segment in eight may be read twice

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::int64_t automatic_batch(std::int64_t segments, std::int64_t warm_up) {
  if (warm_up == 0) {
    return kAutomaticColumns;
  }
  return std::min(kAutomaticColumns, 1 + segments / kAutomaticOverhead / warm_up);
}

}  // namespace

std::int64_t warm_up_segments(const net::Geometry& geometry) {
  const std::vector<std::int64_t> oldest = net::oldest_dependencies(geometry);
  const std::int64_t tokens = -*std::min_element(oldest.begin(), oldest.end());
  return tokens > 0 ? divide_up(tokens, geometry.lengths.segment) : 0;
}

ColumnPlan plan_columns(std::int64_t segments, std::int64_t warm_up, std::int64_t batch) {
  if (segments < 1 || warm_up < 0 || batch < 0) {
    throw std::logic_error("plan_columns: a negative length or an empty stream");
  }
  const std::int64_t wanted = batch > 0 ? batch : automatic_batch(segments, warm_up);
  ColumnPlan plan;
  // With B columns of equal length T the stream has T + (B - 1) (T - warm_up) segments. T exceeds
  // warm_up, so every column but the first starts behind its whole warm-up.
  plan.steps = segments <= warm_up ? segments : warm_up + divide_up(segments - warm_up, wanted);
  plan.columns.push_back({0, 0, plan.steps});
  while (plan.columns.back().end < segments) {
    const std::int64_t start = plan.columns.back().end;
    plan.columns.push_back(
        {start - warm_up, start, std::min(segments, start - warm_up + plan.steps)});
  }
  return plan;
}

}  // namespace ql::eval
