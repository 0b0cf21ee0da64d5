// Tests the paper's context lengths and the exact ones.
#include "net/context.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "unit/net_networks.h"

using namespace ql::net;
using namespace ql::net::testing;

namespace {

struct Row {
  Lengths lengths;
  double mean;
};

void check_means(const Network& network, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    CAPTURE(row.lengths.segment);
    CAPTURE(row.lengths.memory);
    const ContextLength context = paper_context(network, row.lengths);
    CHECK(context.mean() == row.mean);
    CHECK(context.maximum == context.minimum + row.lengths.segment);
  }
}

void check_exact(const Network& network, const Lengths& lengths, std::int64_t minimum,
                 std::int64_t maximum) {
  const ContextLength context = exact_context(network, lengths);
  CHECK(context.minimum == minimum);
  CHECK(context.maximum == maximum);
}

}  // namespace

TEST_CASE("paper_context: the averages of tables 1, 3 and 5") {
  // For 02/30 the paper prints 332, which is the minimum; minimum and maximum are 332 and 334.
  check_means(paper_ql(), {{{4, 12, 0}, 138},
                           {{8, 24, 0}, 276},
                           {{8, 8, 0}, 100},
                           {{16, 16, 0}, 200},
                           {{2, 30, 0}, 333}});
  check_means(xl(8), {{{4, 12, 0}, 98},
                      {{8, 24, 0}, 196},
                      {{8, 8, 0}, 68},
                      {{16, 16, 0}, 136},
                      {{2, 30, 0}, 241}});
  check_means(compressive(8), {{{4, 6, 6}, 146}, {{8, 12, 12}, 292}});
  check_means(multi_scale({3, 3}, 2),
              {{{16, 0, 0}, 8}, {{32, 0, 0}, 16}, {{64, 0, 0}, 32}, {{128, 0, 0}, 64}});
  check_means(vanilla(8), {{{16, 0, 0}, 8}});
}

TEST_CASE("paper_context: the minimum of figure 5") {
  CHECK(paper_context(quadratic({1, 1, 1}, 1), {4, 4, 0}).minimum == 44);
}

TEST_CASE("exact_context: values worked out by hand or by figure 5") {
  check_exact(paper_ql(), {4, 12, 0}, 136, 139);
  check_exact(quadratic({1, 1, 1}, 1), {4, 4, 0}, 44, 47);
  check_exact(quadratic({3, 3}, 2, 4), {16, 48, 0}, 864, 879);
  check_exact(paper_ql(), {8, 0, 0}, 32, 39);
  // With a memory of complete segments, every layer reaches n_m tokens further.
  check_exact(xl(8), {4, 12, 0}, 96, 99);
  // With one token a step, no state is older than necessary.
  check_exact(xl(3), {1, 5, 0}, 15, 15);
  // If the memory is half a segment, its states have seen the beginning of their own segment. So
  // every layer after the first reaches a complete segment further.
  check_exact(xl(1), {4, 2, 0}, 2, 5);
  check_exact(xl(2), {4, 2, 0}, 6, 9);
  check_exact(xl(4), {4, 0, 0}, 0, 3);
  check_exact(vanilla(4), {16, 0, 0}, 0, 15);
  check_exact(multi_scale({3, 3}, 2), {16, 0, 0}, 0, 15);
}

TEST_CASE(
    "exact_context: a step that is not kept entirely reaches further back where the pooling "
    "spreads") {
  const auto with = [](Pool pool) {
    Network network = compressive(1, 3);
    network.pool = pool;
    return network;
  };
  // 12 states a step become 4. The context is three steps and one state of a fourth, the last one.
  // If a group of neighbours becomes this state, it reaches 3 states back into that step; if its
  // states are spread, or it is the last of 4 kept ones, it reaches at most 12 - 3 = 9.
  for (const Pool pool : {Pool::kMax, Pool::kMean, Pool::kConvolution}) {
    CHECK(paper_context(with(pool), {12, 5, 13}).minimum == 5 + 3 * 12 + 3);
  }
  for (const Pool pool : {Pool::kDilatedConvolution, Pool::kMostUsed}) {
    CHECK(paper_context(with(pool), {12, 5, 13}).minimum == 5 + 3 * 12 + 9);
    CHECK(paper_context(with(pool), {12, 5, 15}).minimum == 5 + 3 * 12 + 11);
    CHECK(paper_context(with(pool), {12, 5, 16}).minimum == 5 + 4 * 12);
    CHECK(paper_context(with(pool), {12, 5, 0}).minimum == 5);
    check_exact(with(pool), {12, 5, 13}, 50, 61);
    check_exact(with(pool), {12, 5, 1}, 14, 25);
    check_exact(with(pool), {3, 5, 2}, 11, 13);  // a step becomes one state
  }
  check_exact(with(Pool::kMax), {12, 5, 13}, 44, 55);
}

TEST_CASE("exact_context: long lengths cost no more than their window") {
  // The context is 30,000 segments deep: n_m / n_s * layers.
  check_exact(xl(8), {2, 8192, 0}, 65536, 65537);
  CHECK(paper_context(quadratic({1365, 1365, 1365}, 1, 256), {65536, 1 << 24, 0}).minimum > 0);
}

TEST_CASE("paper_context: refused where queries see few keys; exact lengths are not") {
  Network network = xl(8);
  network.same_length = true;
  CHECK_THROWS_WITH_AS(
      paper_context(network, {4, 12, 0}),
      "same_length: the paper's formula assumes attention to all keys of the window; "
      "compute the exact context length instead",
      ql::ConfigError);
  // Each of eight layers reaches eleven tokens back, at every place in the segment.
  const ContextLength exact = exact_context(network, {4, 12, 0});
  CHECK(exact.minimum == 88);
  CHECK(exact.maximum == 88);
}

TEST_CASE("exact_context: a dilation below 1 is refused") {
  Network network = xl(8);
  network.attention_window = 4;
  for (const std::int64_t dilation : {0, -1}) {
    network.attention_dilation = {1, dilation};
    CHECK_THROWS_WITH_AS(exact_context(network, {4, 12, 0}),
                         doctest::Contains("an item of attention_dilation"), ql::ConfigError);
  }
}
