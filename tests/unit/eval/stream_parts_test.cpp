// Tests the plan of parts: every segment is scored once, and no part starts too late.
#include <algorithm>

#include "eval/stream_parts.h"
#include "net/geometry.h"
#include "net/network.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

void check_plan(std::int64_t segments, std::int64_t warm_up, std::int64_t count) {
  CAPTURE(segments);
  CAPTURE(warm_up);
  CAPTURE(count);
  const std::vector<StreamPart> parts = plan_parts(segments, warm_up, count);
  std::int64_t scored = 0, longest = 0;
  for (const StreamPart& part : parts) {
    CHECK(part.score_from == scored);
    CHECK(part.end > part.score_from);
    CHECK(part.read_from >= 0);
    if (part.read_from > 0) CHECK(part.score_from - part.read_from >= warm_up);
    scored = part.end;
    longest = std::max(longest, part.end - part.read_from);
  }
  CHECK(scored == segments);
  CHECK(parts.front().end == longest);
  CHECK(parts.front().read_from == 0);
  CHECK(static_cast<std::int64_t>(parts.size()) <= count);
}

// Returns the fewest steps in which `count` readers of parts of equal length can read everything,
// found by trying.
std::int64_t fewest_steps(std::int64_t segments, std::int64_t warm_up, std::int64_t count) {
  std::int64_t steps = 1;
  while (steps + (count - 1) * std::max<std::int64_t>(0, steps - warm_up) < segments) ++steps;
  return steps;
}

TEST_CASE("plan_parts: every segment is scored once and every part is warm") {
  for (std::int64_t segments = 1; segments <= 40; ++segments) {
    for (std::int64_t warm_up = 0; warm_up <= 12; ++warm_up) {
      for (const std::int64_t count : {1, 2, 3, 7, 64, 1000}) check_plan(segments, warm_up, count);
    }
  }
  check_plan(61'391, 34, 64);
}

TEST_CASE("plan_parts: parts are as short as they can be") {
  for (std::int64_t segments = 1; segments <= 40; ++segments) {
    for (const std::int64_t warm_up : {0, 1, 5}) {
      for (const std::int64_t count : {1, 2, 3, 7, 64}) {
        CHECK(plan_parts(segments, warm_up, count).front().end ==
              fewest_steps(segments, warm_up, count));
      }
    }
  }
}

TEST_CASE("plan_parts: huge numbers do not overflow") {
  const std::int64_t huge = std::int64_t{1} << 60;
  const std::vector<StreamPart> parts = plan_parts(huge, huge - 8, 4);
  CHECK(parts.size() == 4);
  CHECK(parts.back().end == huge);
  CHECK(plan_parts(5, 2, INT64_MAX).size() == 3);
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

TEST_CASE("plan_parts: if all of the past decides what is kept, one part has it all") {
  net::Network network;
  network.architecture = net::Architecture::kCompressive;
  network.pool = net::Pool::kMostUsed;
  network.scales = {2};
  const auto parts = [&](const net::Lengths& lengths) {
    const std::int64_t warm_up = warm_up_segments(net::make_geometry(network, lengths));
    return plan_parts(100, warm_up, 4).size();
  };
  CHECK(parts({4, 6, 2}) == 1);
  CHECK(parts({4, 6, 0}) == 4);
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
