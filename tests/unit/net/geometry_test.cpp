// Tests the lengths of every scale and of the nearest valid lengths.

#include "net/geometry.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "base/error.h"
#include "unit/complaint.h"
#include "unit/net_networks.h"

using namespace ql::net;
using namespace ql::net::testing;

namespace {

std::string message_of(const Network& network, const Lengths& lengths) {
  return ql::test::complaint<ql::ConfigError>([&] { make_geometry(network, lengths); });
}

struct Expected {
  std::int64_t segment, memory, stride, new_states;
};

void check_scale(const Stage& scale, const Expected& expected) {
  CHECK(scale.segment == expected.segment);
  CHECK(scale.memory == expected.memory);
  CHECK(scale.stride == expected.stride);
  CHECK(scale.new_states == expected.new_states);
}

std::int64_t output_memory(const Geometry& geometry, std::size_t scale) {
  return geometry.stages[geometry.outputs[scale]].memory;
}

}  // namespace

TEST_CASE("make_geometry: Transformer-QL: segments shrink to the pooled window, the window stays") {
  const Geometry geometry = make_geometry(paper_ql(), {4, 12, 0});
  REQUIRE(geometry.outputs.size() == 2);
  check_scale(geometry.last_input(0), {4, 12, 1, 4});
  check_scale(geometry.last_input(1), {4, 12, 2, 2});  // min(16 / 2, 4): two new, two re-computed
  check_scale(geometry.last_input(2), {4, 12, 1, 4});
  CHECK(output_memory(geometry, 0) == 12);
  CHECK(output_memory(geometry, 1) == 0);
  CHECK(geometry.stages.back().memory == 0);
  CHECK(geometry.stages.back().scale == 2);
  CHECK(geometry.last_input(2).layer == 7);
  CHECK(geometry.recurrent);
}

TEST_CASE("make_geometry: Transformer-QL: three scales of rate 4") {
  const Geometry geometry = make_geometry(quadratic({1, 1, 1}, 1, 4), {32, 16, 0});
  check_scale(geometry.last_input(0), {32, 16, 1, 32});
  check_scale(geometry.last_input(1), {12, 36, 4, 8});
  check_scale(geometry.last_input(2), {12, 36, 16, 2});
}

TEST_CASE("make_geometry: Transformer-QL without memory still keeps one at the coarser scales") {
  const Geometry geometry = make_geometry(quadratic({2, 2}, 2), {16, 0, 0});
  check_scale(geometry.last_input(0), {16, 0, 1, 16});
  check_scale(geometry.last_input(1), {8, 8, 2, 8});
  CHECK(geometry.recurrent);
  CHECK(output_memory(geometry, 0) == 0);
  // Accumulation reads the state before the segment, because all eight are new.
  CHECK(output_memory(geometry, 1) == 1);
}

TEST_CASE("make_geometry: Multi-scale: windows shrink with the segments") {
  const Geometry geometry = make_geometry(multi_scale({1, 2, 1}, 1), {12, 0, 0});
  check_scale(geometry.last_input(0), {12, 0, 1, 12});
  check_scale(geometry.last_input(1), {6, 0, 2, 6});
  check_scale(geometry.last_input(2), {3, 0, 4, 3});
  CHECK_FALSE(geometry.recurrent);
  CHECK(output_memory(geometry, 2) == 0);
}

TEST_CASE("make_geometry: One scale: Transformer-XL, Compressive and vanilla") {
  const Geometry of_xl = make_geometry(xl(8), {4, 12, 0});
  REQUIRE(of_xl.outputs.size() == 1);
  check_scale(of_xl.last_input(0), {4, 12, 1, 4});
  CHECK(of_xl.stages.size() == 9);

  const Geometry of_compressive = make_geometry(compressive(8), {4, 6, 6});
  check_scale(of_compressive.last_input(0), {4, 6, 1, 4});
  CHECK(of_compressive.last_input(0).compressed_memory == 6);

  const Geometry of_vanilla = make_geometry(vanilla(8), {64, 0, 0});
  check_scale(of_vanilla.last_input(0), {64, 0, 1, 64});
  CHECK_FALSE(of_vanilla.recurrent);
}

TEST_CASE("make_geometry: the geometries of the golden networks are valid") {
  CHECK_NOTHROW(make_geometry(quadratic({1, 2}, 1, 4), {8, 24, 0}));
  CHECK_NOTHROW(make_geometry(quadratic({2, 1}, 1), {8, 4, 0}));
  CHECK_NOTHROW(make_geometry(quadratic({1, 1, 1}, 1), {4, 4, 0}));
  CHECK_NOTHROW(make_geometry(quadratic({2, 2}, 1), {8, 8, 0}));
  CHECK_NOTHROW(make_geometry(multi_scale({2, 2}, 2), {16, 0, 0}));
  CHECK_NOTHROW(make_geometry(compressive(3), {4, 6, 6}));
  CHECK_NOTHROW(make_geometry(xl(4), {4, 12, 0}));
}

TEST_CASE("make_geometry: wrong lengths name the rule and the nearest valid lengths") {
  CHECK(message_of(paper_ql(), {6, 9, 0}) ==
        "segment 6, memory 9: the window 15 must be a multiple of the rate 2; nearest valid: "
        "memory 8 or 10");
  CHECK(message_of(quadratic({1, 1, 1}, 1), {6, 4, 0}) ==
        "segment 6, memory 4: the segment must be a multiple of 4, the granularity of scale 3 at "
        "rate 2; nearest valid: segment 4 or 8");
  CHECK(message_of(quadratic({1, 1, 1}, 1), {2, 4, 0}) ==
        "segment 2, memory 4: the segment must be a multiple of 4, the granularity of scale 3 at "
        "rate 2; nearest valid: segment 4");
  CHECK(message_of(quadratic({1, 1, 1}, 1), {6, 9, 0}) ==
        "segment 6, memory 9: the segment must be a multiple of 4, the granularity of scale 3 at "
        "rate 2; nearest valid: segment 4 with memory 8, or segment 8 with memory 10");
  CHECK(message_of(compressive(8), {5, 6, 6}) ==
        "segment 5, memory 6, compressed memory 6: the segment must be a multiple of the rate 2; "
        "nearest valid: segment 4 or 6");
  CHECK(message_of(multi_scale({3, 3}, 2), {16, 4, 0}) ==
        "segment 16, memory 4: a multi-scale network keeps no memory; nearest valid: memory 0");
  CHECK(message_of(vanilla(2), {16, 4, 0}) ==
        "segment 16, memory 4: a vanilla network keeps no memory; nearest valid: memory 0");
  CHECK(message_of(xl(2), {16, 4, 2}) ==
        "segment 16, memory 4, compressed memory 2: a transformer-xl network keeps no compressed "
        "memory; nearest valid: compressed memory 0");
  CHECK(message_of(xl(2), {0, 4, 0}) ==
        "segment 0, memory 4: the segment must be 1 to 16777216; nearest valid: segment 1");
  CHECK(message_of(xl(2), {4, -1, 0}) ==
        "segment 4, memory -1: the memory must be 0 to 16777216; nearest valid: memory 0");
  CHECK(message_of(xl(2), {INT64_MAX, INT64_MIN, 0})
            .find("nearest valid: segment 16777216 with memory 0") != std::string::npos);
  CHECK(message_of(quadratic({1, 1, 1}, 1, 4096), {4096, 0, 0}) ==
        "segment 4096, memory 0: the segment must be a multiple of 16777216, the granularity of "
        "scale 3 at rate 4096; nearest valid: segment 16777216");
  CHECK(message_of(quadratic({1, 1, 1, 1}, 1, 4096), {4096, 0, 0}) ==
        "segment 4096, memory 0: 4 scales at rate 4096 need a segment of more than "
        "16777216, the largest length; use fewer scales or a smaller rate");
}

TEST_CASE("nearest_valid_lengths: every suggestion can be built, and no valid length is nearer") {
  std::mt19937 random(7);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto valid = [](const Network& network, const Lengths& lengths) {
    return message_of(network, lengths) == "";
  };
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t rate = pick(2, 5);
    std::vector<std::int64_t> scales(static_cast<std::size_t>(pick(1, 3)), 1);
    const std::vector<Network> family{quadratic(scales, pick(0, 2), rate), xl(3),
                                      compressive(2, rate), multi_scale(scales, 1, rate),
                                      vanilla(2)};
    const Network& network = family[static_cast<std::size_t>(pick(0, 4))];
    const Lengths lengths{pick(-2, 60), pick(-2, 60), pick(-2, 3)};
    const std::vector<Lengths> nearest = nearest_valid_lengths(network, lengths);
    REQUIRE(!nearest.empty());
    for (const Lengths& suggestion : nearest) CHECK(valid(network, suggestion));
    if (valid(network, lengths)) {
      CHECK(nearest == std::vector<Lengths>{lengths});
      continue;
    }
    ++refused;
    // With the other lengths corrected, no nearer segment is valid.
    const std::int64_t low = nearest.front().segment, high = nearest.back().segment;
    for (std::int64_t segment = low + 1; segment < high; ++segment) {
      CHECK_FALSE(
          valid(network, {segment, nearest.front().memory, nearest.front().compressed_memory}));
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("make_geometry: the definitions of the paper hold for every valid geometry") {
  for (std::int64_t rate = 2; rate <= 4; ++rate) {
    for (std::int64_t segment = 1; segment <= 64; ++segment) {
      for (std::int64_t memory = 0; memory <= 40; memory += 3) {
        const Network network = quadratic({1, 2, 1}, 1, rate);
        if (message_of(network, {segment, memory, 0}) != "") {
          CHECK((segment % (rate * rate) != 0 || (segment + memory) % rate != 0));
          continue;
        }
        const Geometry geometry = make_geometry(network, {segment, memory, 0});
        std::int64_t stride = 1;
        for (std::size_t i = 0; i < geometry.outputs.size(); ++i) {
          const Stage& scale = geometry.last_input(i);
          CHECK(scale.window() == segment + memory);
          CHECK(scale.stride == stride);
          CHECK(scale.new_states * scale.stride == segment);
          CHECK(scale.segment >= scale.new_states);
          stride *= rate;
        }
      }
    }
  }
}
