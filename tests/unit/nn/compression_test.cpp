// Tests the choice of the most used memories.
#include <cstdint>
#include <vector>

#include "nn/compression.h"
#include "unit/nn_support.h"
#include "unit/torch_doctest.h"

namespace ql {
namespace {

net::Network compressive(std::int64_t rate) {
  net::Network network =
      test::small_network(net::Architecture::kCompressive, {1}, 0, {2 * rate, 4, 2});
  network.pool = net::Pool::kMostUsed;
  network.rate = rate;
  return network;
}

// Returns the states kept for this `usage`. Every state has one element, its place.
std::vector<double> kept_of(const std::vector<double>& usage, std::int64_t rate) {
  const auto length = static_cast<std::int64_t>(usage.size());
  const at::Tensor states = at::arange(length, at::kDouble).view({1, length, 1});
  const at::Tensor kept = nn::compress_memories(compressive(rate), {}, states,
                                                at::tensor(usage, at::kDouble).unsqueeze(0));
  const at::Tensor flat = kept.flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

}  // namespace

TEST_CASE("compress_memories: the most used are kept in their order in time, the newer of equals") {
  using Places = std::vector<double>;
  CHECK(kept_of({0.1, 0.4, 0.2, 0.3}, 2) == Places{1, 3});
  CHECK(kept_of({0.4, 0.3, 0.2, 0.1}, 2) == Places{0, 1});
  CHECK(kept_of({0.4, 0.3, 0.2, 0.1}, 4) == Places{0});
  CHECK(kept_of({0.1, 0.2, 0.3, 0.3}, 4) == Places{3});
  CHECK(kept_of({0.5, 0.2, 0.2, 0.1, 0.2, 0.2}, 2) == Places{0, 4, 5});
  CHECK(kept_of(Places(40, 0.025), 4) == Places{30, 31, 32, 33, 34, 35, 36, 37, 38, 39});
}

TEST_CASE("compress_memories: the most used are those of each stream") {
  const at::Tensor states = at::arange(12, at::kDouble).view({2, 6, 1});
  const at::Tensor usage =
      at::tensor({6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0}, at::kDouble);
  const at::Tensor kept = nn::compress_memories(compressive(2), {}, states, usage.view({2, 6}));
  CHECK(at::equal(kept.view({2, 3}), at::tensor({0.0, 1.0, 2.0, 7.0, 9.0, 11.0}).view({2, 3})));
}

}  // namespace ql
