#include "net/propose_cutoffs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "net/clusters.h"

namespace ql::net {
namespace {

constexpr std::size_t kMostCutoffs = 3;
// Candidates grow by a tenth each: the products around the best are flat.
constexpr double kGrowth = 1.1;
constexpr double kGoodEnough = 1.1;

// Sums over the first ids: entry i is of the ids below i.
using Sums = std::vector<double>;

Sums sums_of(const std::vector<std::int64_t>& counts) {
  Sums sums(counts.size() + 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sums[i + 1] = sums[i] + static_cast<double>(counts[i]);
  }
  return sums;
}

double products(const Network& network, const Sums& sums) {
  const std::vector<Cluster> all = clusters(network);
  double total = 0;
  for (const Cluster& cluster : all) {
    const bool head = cluster.begin == 0;
    const double share = (sums[static_cast<std::size_t>(cluster.end)] -
                          sums[static_cast<std::size_t>(cluster.begin)]) /
                         sums.back();
    const auto width = static_cast<double>(cluster.width);
    const double columns = static_cast<double>(cluster.size()) +
                           (head ? static_cast<double>(network.cutoffs.size()) : 0);
    const double projection = cluster.projected ? static_cast<double>(network.d_model) : 0;
    total += (head ? 1 : share) * width * (columns + projection);
  }
  return total;
}

std::vector<std::int64_t> candidates(std::int64_t vocab_size) {
  std::vector<std::int64_t> values;
  std::int64_t value = 1;
  while (value < vocab_size) {
    values.push_back(value);
    const double grown = std::floor(static_cast<double>(value) * kGrowth);
    value = std::max(value + 1, static_cast<std::int64_t>(grown));
  }
  return values;
}

struct Best {
  std::vector<std::int64_t> cutoffs;
  double products = std::numeric_limits<double>::infinity();
};

// Tries every choice of `more` further candidates from `first` on.
void search(Network& network, const Sums& sums, const std::vector<std::int64_t>& values,
            std::size_t first, std::size_t more, Best& best) {
  if (more == 0) {
    const double found = products(network, sums);
    if (found < best.products) best = {network.cutoffs, found};
    return;
  }
  for (std::size_t i = first; i + more <= values.size(); ++i) {
    network.cutoffs.push_back(values[i]);
    search(network, sums, values, i + 1, more - 1, best);
    network.cutoffs.pop_back();
  }
}

}  // namespace

double softmax_products(const Network& network, const std::vector<std::int64_t>& counts) {
  return products(network, sums_of(counts));
}

std::vector<std::int64_t> propose_cutoffs(const Network& network,
                                          const std::vector<std::int64_t>& counts) {
  const Sums sums = sums_of(counts);
  const std::vector<std::int64_t> values = candidates(network.vocab_size);
  std::vector<Best> best;
  Network tried = network;
  std::int64_t width = network.embedding_width();
  for (std::size_t number = 0; number <= kMostCutoffs && width >= 1; ++number) {
    tried.cutoffs.clear();
    tried.tie_projs.clear();
    best.emplace_back();
    search(tried, sums, values, 0, number, best.back());
    width /= network.div_val;
  }
  double least = best.front().products;
  for (const Best& one : best) least = std::min(least, one.products);
  for (const Best& one : best) {
    if (one.products <= kGoodEnough * least) return one.cutoffs;
  }
  return {};
}

}  // namespace ql::net
