// Tests the plan of columns: every segment is scored once, and no column starts too late.
#include <algorithm>

#include "eval/stream_columns.h"
#include "net/geometry.h"
#include "net/network.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

void check_plan(std::int64_t segments, std::int64_t warm_up, std::int64_t batch) {
  CAPTURE(segments);
  CAPTURE(warm_up);
  CAPTURE(batch);
  const std::vector<Column> columns = plan_columns(segments, warm_up, batch);
  std::int64_t scored = 0, longest = 0;
  for (const Column& column : columns) {
    CHECK(column.score_from == scored);
    CHECK(column.end > column.score_from);
    CHECK(column.read_from >= 0);
    if (column.read_from > 0) CHECK(column.score_from - column.read_from >= warm_up);
    scored = column.end;
    longest = std::max(longest, column.end - column.read_from);
  }
  CHECK(scored == segments);
  CHECK(columns.front().end == longest);
  CHECK(columns.front().read_from == 0);
  CHECK(static_cast<std::int64_t>(columns.size()) <= batch);
}

// Returns the fewest steps in which `batch` columns of equal length can read everything, found by
// trying.
std::int64_t fewest_steps(std::int64_t segments, std::int64_t warm_up, std::int64_t batch) {
  std::int64_t steps = 1;
  while (steps + (batch - 1) * std::max<std::int64_t>(0, steps - warm_up) < segments) ++steps;
  return steps;
}

TEST_CASE("plan_columns: every segment is scored once and every column is warm") {
  for (std::int64_t segments = 1; segments <= 40; ++segments) {
    for (std::int64_t warm_up = 0; warm_up <= 12; ++warm_up) {
      for (const std::int64_t batch : {1, 2, 3, 7, 64, 1000}) check_plan(segments, warm_up, batch);
    }
  }
  check_plan(61'391, 34, 64);
}

TEST_CASE("plan_columns: columns are as short as they can be") {
  for (std::int64_t segments = 1; segments <= 40; ++segments) {
    for (const std::int64_t warm_up : {0, 1, 5}) {
      for (const std::int64_t batch : {1, 2, 3, 7, 64}) {
        CHECK(plan_columns(segments, warm_up, batch).front().end ==
              fewest_steps(segments, warm_up, batch));
      }
    }
  }
}

TEST_CASE("plan_columns: huge numbers do not overflow") {
  const std::int64_t huge = std::int64_t{1} << 60;
  const std::vector<Column> columns = plan_columns(huge, huge - 8, 4);
  CHECK(columns.size() == 4);
  CHECK(columns.back().end == huge);
  CHECK(plan_columns(5, 2, INT64_MAX).size() == 3);
}

std::int64_t warm_up(net::Architecture architecture, std::vector<std::int64_t> scales,
                     std::int64_t output_layers, std::int64_t rate, net::Lengths lengths) {
  net::Network network;
  network.architecture = architecture;
  network.scales = std::move(scales);
  network.output_layers = output_layers;
  network.rate = rate;
  network.d_model = network.n_head = network.d_head = network.d_inner = network.vocab_size = 1;
  return warm_up_segments(net::make_geometry(network, lengths));
}

TEST_CASE("plan_columns: if all of the past decides what is kept, one column reads it all") {
  net::Network network;
  network.architecture = net::Architecture::kCompressive;
  network.pool = net::Pool::kMostUsed;
  network.scales = {2};
  const auto columns = [&](const net::Lengths& lengths) {
    const std::int64_t warm_up = warm_up_segments(net::make_geometry(network, lengths));
    return plan_columns(100, warm_up, 4).size();
  };
  CHECK(columns({4, 6, 2}) == 1);
  CHECK(columns({4, 6, 0}) == 4);
}

TEST_CASE("columns_that_fit: as many columns are read in parallel as fit into memory") {
  const net::Network network =
      test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 8, 0});
  const net::Geometry geometry = net::make_geometry(network, network.lengths);
  const auto needs = [&](std::int64_t columns) {
    return columns_bytes(network, geometry, columns, 2, 1 << 12);
  };
  CHECK(needs(2) - needs(1) > 1 << 12);
  for (std::int64_t columns = 1; columns < 200; ++columns) {
    CAPTURE(columns);
    const std::int64_t available = needs(columns);
    const std::int64_t found = columns_that_fit(network, geometry, 200, 2, 1 << 12, available);
    CHECK(needs(found) <= available);
    // The memory grows in steps of a group of columns.
    CHECK(4 * found >= 3 * columns);
    CHECK(columns_that_fit(network, geometry, columns, 2, 1 << 12, needs(200)) == columns);
  }
  CHECK(columns_that_fit(network, geometry, 200, 2, 1 << 12, 0) == 1);
}

TEST_CASE("warm_up_segments: the warm-up is the exact context at a segment's start") {
  using net::Architecture;
  CHECK(warm_up(Architecture::kTransformerQl, {3, 3}, 2, 2, {4, 12, 0}) == 136 / 4);
  CHECK(warm_up(Architecture::kTransformerQl, {3, 3}, 2, 4, {16, 48, 0}) == 864 / 16);
  CHECK(warm_up(Architecture::kTransformerQl, {3, 3}, 2, 2, {8, 0, 0}) == 32 / 8);
  CHECK(warm_up(Architecture::kTransformerXl, {8}, 0, 2, {4, 12, 0}) == 96 / 4);
  // The memory's one state depends on the start of its own segment, and so on layer by layer.
  CHECK(warm_up(Architecture::kTransformerXl, {3}, 0, 2, {4, 1, 0}) == 3);
  CHECK(warm_up(Architecture::kMultiScale, {2, 2}, 1, 2, {8, 0, 0}) == 0);
  CHECK(warm_up(Architecture::kVanilla, {4}, 0, 2, {8, 0, 0}) == 0);
}

}  // namespace
}  // namespace ql::eval
