// The compression of old memories by itself: which states are kept, and what is decoded.
#include "nn/compression_internal.h"

#include <cstdint>
#include <vector>

#include "nn_support.h"
#include "torch_doctest.h"

namespace ql {
namespace {

net::Network compressive(net::Pool pool, std::int64_t rate) {
  net::Network network =
      test::small_network(net::Architecture::kCompressive, {1}, 0, {2 * rate, 4, 2});
  network.pool = pool;
  network.rate = rate;
  return network;
}

// States of one number each, which is their place: what is kept of `usage`.
std::vector<double> kept_of(const std::vector<double>& usage, std::int64_t rate) {
  const auto length = static_cast<std::int64_t>(usage.size());
  const at::Tensor states = at::arange(length, at::kDouble).view({1, length, 1});
  const at::Tensor kept = nn::compress_memories(compressive(net::Pool::kMostUsed, rate), {}, states,
                                                at::tensor(usage, at::kDouble).unsqueeze(0));
  const at::Tensor flat = kept.flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

}  // namespace

TEST_CASE("the most used are kept in their order in time, the newer of equals") {
  using Places = std::vector<double>;
  CHECK(kept_of({0.1, 0.4, 0.2, 0.3}, 2) == Places{1, 3});
  CHECK(kept_of({0.4, 0.3, 0.2, 0.1}, 2) == Places{0, 1});
  CHECK(kept_of({0.4, 0.3, 0.2, 0.1}, 4) == Places{0});
  CHECK(kept_of({0.1, 0.2, 0.3, 0.3}, 4) == Places{3});
  CHECK(kept_of({0.5, 0.2, 0.2, 0.1, 0.2, 0.2}, 2) == Places{0, 4, 5});
  CHECK(kept_of(Places(40, 0.025), 4) == Places{30, 31, 32, 33, 34, 35, 36, 37, 38, 39});
}

TEST_CASE("the most used are those of each stream, and no pool asks for a gradient") {
  const at::Tensor states = at::arange(12, at::kDouble).view({2, 6, 1});
  const at::Tensor usage =
      at::tensor({6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0}, at::kDouble);
  const at::Tensor kept =
      nn::compress_memories(compressive(net::Pool::kMostUsed, 2), {}, states, usage.view({2, 6}));
  CHECK(at::equal(kept.view({2, 3}), at::tensor({0.0, 1.0, 2.0, 7.0, 9.0, 11.0}).view({2, 3})));
}

TEST_CASE("auto-encoding is the mean square of the difference to the states, one by one") {
  at::manual_seed(5);
  constexpr std::int64_t kBatch = 2, kCount = 3, kRate = 2, kWidth = 8;
  for (const net::Pool pool : {net::Pool::kConvolution, net::Pool::kDilatedConvolution}) {
    net::Network network = compressive(pool, kRate);
    network.compression_loss = net::CompressionLoss::kAutoEncoding;
    nn::LayerParameters parameters;
    parameters.compression.decoder_weight = at::randn({kWidth, kWidth, kRate}, at::kDouble);
    parameters.compression.decoder_bias = at::randn({kWidth}, at::kDouble);
    const at::Tensor states = at::randn({kBatch, kCount * kRate, kWidth}, at::kDouble);
    const at::Tensor compressed = at::randn({kBatch, kCount, kWidth}, at::kDouble);
    const auto weight = parameters.compression.decoder_weight.accessor<double, 3>();
    const auto bias = parameters.compression.decoder_bias.accessor<double, 1>();
    const auto old = states.accessor<double, 3>();
    const auto code = compressed.accessor<double, 3>();
    double sum = 0;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      for (std::int64_t k = 0; k < kCount; ++k) {
        for (std::int64_t i = 0; i < kRate; ++i) {
          const std::int64_t place =
              pool == net::Pool::kConvolution ? k * kRate + i : k + i * kCount;
          for (std::int64_t to = 0; to < kWidth; ++to) {
            double decoded = bias[to];
            for (std::int64_t from = 0; from < kWidth; ++from) {
              decoded += weight[from][to][i] * code[b][k][from];
            }
            sum += (decoded - old[b][place][to]) * (decoded - old[b][place][to]);
          }
        }
      }
    }
    const nn::StepOptions step;
    const nn::LayerContext context{network, parameters, step, 0};
    const double found = nn::compression_loss(context, states, states, compressed).item<double>();
    CHECK(found == doctest::Approx(sum / static_cast<double>(states.numel())).epsilon(1e-12));
  }
}

}  // namespace ql
