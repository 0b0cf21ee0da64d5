// Tests stages and the states of a cone. context_dependency_test.cpp checks a cone's tokens.
#include <doctest/doctest.h>

#include <algorithm>

#include "net/context.h"
#include "net/cost.h"
#include "net/geometry.h"
#include "unit/net_networks.h"

using namespace ql::net;
using namespace ql::net::testing;

namespace {

struct Case {
  Network network;
  Lengths lengths;
};

std::vector<Case> cases() {
  return {{paper_ql(), {4, 12, 0}},
          {quadratic({1, 1, 1}, 1), {4, 4, 0}},
          {quadratic({2, 1}, 0), {8, 0, 0}},
          {quadratic({1, 2}, 1, 3), {9, 3, 0}},
          {xl(3), {4, 7, 0}},
          {compressive(2), {4, 6, 6}},
          {multi_scale({1, 2}, 1), {8, 0, 0}},
          {vanilla(2), {7, 0, 0}}};
}

// Returns the first tokens of the states of one stage in a cone, each once, in order.
std::vector<std::int64_t> tokens_of(const Cone& cone, const std::vector<Stage>& all,
                                    std::size_t stage) {
  std::vector<std::int64_t> tokens;
  for (std::size_t k = 0; k < cone[stage].size(); ++k) {
    for (std::size_t i = 0; i < cone[stage][k].size(); ++i) {
      if (cone[stage][k][i]) {
        tokens.push_back(
            first_token(all[stage], {static_cast<std::int64_t>(k), static_cast<std::int64_t>(i)}));
      }
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace

TEST_CASE("make_geometry: the memories of all stages are those that a stream keeps") {
  for (const Case& entry : cases()) {
    std::int64_t states = 0;
    for (const Stage& stage : make_geometry(entry.network, entry.lengths).stages) {
      states += stage.memory + stage.compressed_memory;
    }
    CHECK(states == cost(entry.network, entry.lengths).memory_states);
  }
}

TEST_CASE("make_geometry: the stages of figure 5") {
  using Source = Stage::Source;
  const std::vector<Stage> all = make_geometry(quadratic({1, 1, 1}, 1), {4, 4, 0}).stages;
  const std::vector<Source> expected = {Source::kTokens,   Source::kLayer,      Source::kCompressed,
                                        Source::kLayer,    Source::kCompressed, Source::kLayer,
                                        Source::kAveraged, Source::kLayer};
  REQUIRE(all.size() == expected.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].source == expected[i]);
    CHECK(all[i].segment == 4);
  }
  CHECK(all[4].stride == 4);
  CHECK(all[4].new_states == 1);
  CHECK(all.back().scale == 3);
}

TEST_CASE("cone_of: the tokens of figure 5's output state, stage by stage") {
  // The test names the last states of every row of the figure by their oldest tokens; t is the
  // token of position 3.
  const Geometry geometry = make_geometry(quadratic({1, 1, 1}, 1), {4, 4, 0});
  const std::vector<Stage> all = geometry.stages;
  const Cone cone = cone_of(geometry, 3);
  // The output layer reads a window of 8 states. Each of these needs the states of every scale that
  // end at or before it.
  CHECK(tokens_of(cone, all, 7) == std::vector<std::int64_t>{3});
  CHECK(tokens_of(cone, all, 6) == std::vector<std::int64_t>{-4, -3, -2, -1, 0, 1, 2, 3});
  // Scale 3 has states of four tokens. Token -4 takes the one that ends at -5.
  CHECK(tokens_of(cone, all, 5) == std::vector<std::int64_t>{-8, -4, 0});
  CHECK(tokens_of(cone, all, 0).front() == 3 - 47);
}

TEST_CASE("cone_of: a cone is causal, complete, and contains the nearer states") {
  for (const Case& entry : cases()) {
    const Geometry geometry = make_geometry(entry.network, entry.lengths);
    const std::vector<Stage> all = geometry.stages;
    const std::vector<std::int64_t> oldest = oldest_dependencies(geometry);
    for (std::int64_t position = 0; position < entry.lengths.segment; ++position) {
      const Cone cone = cone_of(geometry, position);
      REQUIRE(cone.size() == all.size());
      for (std::size_t stage = 0; stage < all.size(); ++stage) {
        REQUIRE(cone[stage].size() == cone.front().size());
        for (const std::int64_t token : tokens_of(cone, all, stage)) {
          CHECK(token + all[stage].stride - 1 <= position);
          CHECK(token >= oldest[static_cast<std::size_t>(position)]);
        }
      }
      const std::vector<std::int64_t> tokens = tokens_of(cone, all, 0);
      CHECK(tokens.front() == oldest[static_cast<std::size_t>(position)]);
      CHECK(tokens.back() == position);
      CHECK(tokens_of(cone, all, all.size() - 1) == std::vector<std::int64_t>{position});
    }
  }
}

TEST_CASE("first_token: states inside and before a segment") {
  // The stride is 2. Two of four states are new: tokens -4 .. 3.
  const Stage stage = make_geometry(paper_ql(), {4, 12, 0}).stages[4];
  CHECK(stage.stride == 2);
  CHECK(first_token(stage, {0, 0}) == -4);
  CHECK(first_token(stage, {0, 3}) == 2);
  CHECK(first_token(stage, origin_of(stage, -1)) == -6);
  // The newest state of the memory is the second state of the segment one step ago.
  CHECK(origin_of(stage, -1).steps_back == 1);
  CHECK(origin_of(stage, -1).index == 1);
  CHECK(first_token(stage, {1, 1}) == -6);
}
