#include "eval/chunk_size.h"

#include <algorithm>
#include <cmath>

#include "base/resources.h"
#include "net/attention_cost.h"

namespace ql::eval {
namespace {

constexpr double kMostBytes = 128.0 * (1 << 20);
constexpr double kShareOfAvailable = 1.0 / 8;
constexpr double kDeviceBytes = 1024.0 * (1 << 20);

// Rounds the memory that the system would give to a power of two. So it is the same on the next
// run: the shape of the products decides the last digits of the results.
double steadily_available_bytes() {
  const std::int64_t available = available_bytes();
  return available == 0 ? kMostBytes / kShareOfAvailable
                        : std::exp2(std::floor(std::log2(static_cast<double>(available))));
}

}  // namespace

double bytes_per_segment(const net::Network& network, const net::Geometry& geometry) {
  const auto d_heads = static_cast<double>(network.n_head * network.d_head);
  double numbers = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const net::Network of_stage = network.of_scale(stage.scale);
    const auto d_model = static_cast<double>(of_stage.d_model);
    const auto d_inner = static_cast<double>(of_stage.d_inner);
    const auto segment = static_cast<double>(stage.segment);
    const auto window = static_cast<double>(stage.window());
    // Keys and values. Resetting at documents holds them once more, with those of other documents
    // replaced.
    const double keys_values = (network.reset_memory_at_documents ? 4 : 2) * window * d_heads;
    const double attention = keys_values + net::attention_cost(network, stage).held +
                             3 * static_cast<double>(stage.segment_keys()) * d_heads;
    const double feed_forward = 2 * segment * d_inner;
    numbers = std::max(
        numbers, std::max(attention, feed_forward) + window * d_model + 6 * segment * d_model);
  }
  // The up-sampled states of every scale wait for their average.
  const auto scales = static_cast<double>(geometry.outputs.size());
  return 4 * (numbers + scales * static_cast<double>(geometry.lengths.segment) *
                            static_cast<double>(network.d_model));
}

std::int64_t automatic_segments(const net::Network& network, const net::Geometry& geometry,
                                const c10::Device& device) {
  const double bytes = device.is_cpu()
                           ? std::min(kMostBytes, kShareOfAvailable * steadily_available_bytes())
                           : kDeviceBytes;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(bytes / bytes_per_segment(network, geometry)));
}

std::int64_t chunk_bytes(const net::Network& network, const net::Geometry& geometry,
                         std::int64_t tokens) {
  const std::int64_t segment = geometry.lengths.segment;
  const std::int64_t segments =
      std::min((tokens + segment - 1) / segment, automatic_segments(network, geometry, c10::kCPU));
  return static_cast<std::int64_t>(static_cast<double>(segments) *
                                   bytes_per_segment(network, geometry));
}

}  // namespace ql::eval
