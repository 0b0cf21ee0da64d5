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

// Counts the products token by token.
double counted_products(const Network& network, const std::vector<std::int64_t>& counts) {
  double products = 0, tokens = 0;
  for (std::int64_t id = 0; id < network.vocab_size; ++id) {
    std::int64_t begin = 0, end = network.vocab_size, width = network.embedding_width();
    std::size_t cluster = 0;
    std::vector<std::int64_t> bounds = network.cutoffs;
    bounds.push_back(network.vocab_size);
    while (id >= bounds[cluster]) {
      begin = bounds[cluster++];
      width /= network.div_val;
    }
    end = bounds[cluster];
    const auto projection = [&](std::int64_t from) {
      return network.div_val > 1 || from != network.d_model ? network.d_model * from : 0;
    };
    const std::int64_t head = network.embedding_width();
    double needed = static_cast<double>(
        head * (bounds.front() + static_cast<std::int64_t>(network.cutoffs.size())) +
        projection(head));
    if (cluster > 0) needed += static_cast<double>(width * (end - begin) + projection(width));
    products += needed * static_cast<double>(counts[static_cast<std::size_t>(id)]);
    tokens += static_cast<double>(counts[static_cast<std::size_t>(id)]);
  }
  return products / tokens;
}

}  // namespace

TEST_CASE("softmax_products: the products of a division are those of its tokens") {
  const std::vector<std::int64_t> counts = zipf(40);
  for (const std::int64_t div_val : {1, 2}) {
    Network network = network_of(40, 8, div_val);
    CHECK(softmax_products(network, counts) == doctest::Approx(counted_products(network, counts)));
    network.cutoffs = {5, 17};
    CHECK(softmax_products(network, counts) == doctest::Approx(counted_products(network, counts)));
    network.d_embed = 6;
    CHECK(softmax_products(network, counts) == doctest::Approx(counted_products(network, counts)));
  }
}

TEST_CASE("propose_cutoffs: no other cutoffs of the same number save a tenth") {
  const std::vector<std::int64_t> counts = zipf(60);
  for (const std::int64_t div_val : {1, 4}) {
    Network network = network_of(60, 4, div_val);
    const std::vector<std::int64_t> proposed = propose_cutoffs(network, counts);
    network.cutoffs = proposed;
    const double products = softmax_products(network, counts);
    for (std::int64_t first = 1; first < 60; ++first) {
      network.cutoffs = {first};
      CHECK(products <= 1.1 * softmax_products(network, counts));
      for (std::int64_t second = first + 1; second < 60; ++second) {
        network.cutoffs = {first, second};
        if (div_val == 1) CHECK(products <= 1.1 * softmax_products(network, counts));
      }
    }
  }
}

TEST_CASE("propose_cutoffs: a large vocabulary is divided, a tiny one is not") {
  Network network = network_of(33278, 128, 1);
  const std::vector<std::int64_t> counts = zipf(33278);
  network.cutoffs = propose_cutoffs(network, counts);
  CHECK(!network.cutoffs.empty());
  network.check();
  const double divided = softmax_products(network, counts);
  network.cutoffs.clear();
  CHECK(divided < 0.5 * softmax_products(network, counts));
  CHECK(propose_cutoffs(network_of(2, 8, 1), zipf(2)).empty());
  CHECK(propose_cutoffs(network_of(1, 8, 1), zipf(1)).empty());
}

}  // namespace ql::net
