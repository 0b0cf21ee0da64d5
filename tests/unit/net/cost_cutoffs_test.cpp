// Tests proposed cutoffs against a search of all others.

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "net/cost.h"

namespace ql::net {
namespace {

Network network_of(std::int64_t vocab_size, std::int64_t d_model, std::int64_t div_val) {
  Network network;
  network.architecture = Architecture::kTransformerXl;
  network.vocab_size = vocab_size;
  network.d_model = d_model;
  network.n_head = network.d_head = network.d_inner = 1;
  network.scales = {1};
  network.div_val = div_val;
  return network;
}

// Returns frequencies as in natural text: the n-th word occurs 1/n times as often as the first.
std::vector<std::int64_t> zipf(std::int64_t size) {
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 1; i <= size; ++i) counts.push_back(1000000 / i);
  return counts;
}

// Counts the columns token by token. For each id the weights take as long as 0.11 columns.
double counted_columns(const Network& network, const std::vector<std::int64_t>& counts) {
  double columns = 0, tokens = 0;
  for (std::int64_t id = 0; id < network.vocab_size; ++id) {
    std::vector<std::int64_t> bounds = network.cutoffs;
    bounds.push_back(network.vocab_size);
    std::size_t cluster = 0;
    while (id >= bounds[cluster]) ++cluster;
    const std::int64_t projection =
        network.embedding_width() == network.d_model ? 0 : network.d_model;
    const auto tails = static_cast<std::int64_t>(network.cutoffs.size());
    std::int64_t needed = bounds.front() + tails + projection;
    if (cluster > 0) needed += bounds[cluster] - bounds[cluster - 1] + projection;
    columns += static_cast<double>(needed * counts[static_cast<std::size_t>(id)]);
    tokens += static_cast<double>(counts[static_cast<std::size_t>(id)]);
  }
  return columns / tokens + 0.11 * static_cast<double>(network.vocab_size);
}

}  // namespace

TEST_CASE("softmax_columns: the columns of a division are those of its tokens") {
  const std::vector<std::int64_t> counts = zipf(40);
  Network network = network_of(40, 8, 1);
  CHECK(softmax_columns(network, counts) == doctest::Approx(counted_columns(network, counts)));
  network.cutoffs = {5, 17};
  CHECK(softmax_columns(network, counts) == doctest::Approx(counted_columns(network, counts)));
  network.d_embed = 6;
  CHECK(softmax_columns(network, counts) == doctest::Approx(counted_columns(network, counts)));
}

TEST_CASE("propose_cutoffs: with equal widths no other cutoffs save a tenth of the time") {
  const std::vector<std::int64_t> counts = zipf(3000);
  Network network = network_of(3000, 4, 1);
  network.cutoffs = propose_cutoffs(network, counts);
  CHECK(!network.cutoffs.empty());
  const double proposed = softmax_columns(network, counts);
  for (std::int64_t first = 1; first < 3000; first += 7) {
    network.cutoffs = {first};
    CHECK(proposed <= 1.1 * softmax_columns(network, counts));
    for (std::int64_t second = first + 1; second < 3000; second += 97) {
      network.cutoffs = {first, second};
      CHECK(proposed <= 1.1 * softmax_columns(network, counts));
    }
  }
}

TEST_CASE("propose_cutoffs: a large vocabulary is divided, a tiny one is not") {
  Network network = network_of(33278, 128, 1);
  const std::vector<std::int64_t> counts = zipf(33278);
  network.cutoffs = propose_cutoffs(network, counts);
  CHECK(!network.cutoffs.empty());
  network.check();
  const double divided = softmax_columns(network, counts);
  network.cutoffs.clear();
  CHECK(divided < 0.5 * softmax_columns(network, counts));
  for (const std::int64_t small : {1, 2}) {
    CHECK(propose_cutoffs(network_of(small, 8, 1), zipf(small)).empty());
  }
}

TEST_CASE("propose_cutoffs: with narrower clusters the proportions are those of WikiText-103") {
  struct Division {
    std::int64_t vocab_size, d_model, div_val;
    std::vector<std::int64_t> cutoffs;
  };
  // For 60,749 words 20,000 of 267,735 are 4,538.0, for 100 words 7.47, for 10 words 0.75, and for
  // 2 words 0.15; the second cutoff has twice and the third ten times as many.
  for (const Division& division :
       {Division{267735, 1024, 4, {20000, 40000, 200000}},
        Division{60749, 256, 4, {4538, 9076, 45380}}, Division{100, 64, 2, {7, 15, 75}},
        Division{10, 64, 2, {1, 7}}, Division{2, 64, 2, {1}}, Division{60749, 4, 4, {4538}},
        Division{1, 64, 2, {}}}) {
    CAPTURE(division.vocab_size);
    Network network = network_of(division.vocab_size, division.d_model, division.div_val);
    network.cutoffs = propose_cutoffs(network, {});
    CHECK(network.cutoffs == division.cutoffs);
    network.check();
  }
}

}  // namespace ql::net
