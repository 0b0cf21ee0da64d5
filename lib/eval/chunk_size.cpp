// Counts the bytes that a segment takes in a layer, and how many segments fill a chunk.

#include "eval/chunk_size.h"

#include <algorithm>
#include <cmath>

#include "base/resources.h"
#include "net/cost.h"

namespace ql::eval {

namespace {

constexpr double kMostBytes = 128.0 * (1 << 20);
constexpr double kShareOfAvailable = 1.0 / 8;
constexpr double kDeviceBytes = 1024.0 * (1 << 20);

// Returns the system's available memory, rounded down to a power of two. So a second run usually
// reads the same number of segments at once. Another number could change the last digits of the
// results.
double steadily_available_bytes() {
  const std::int64_t available = available_bytes();
  return available == 0 ? kMostBytes / kShareOfAvailable
                        : std::exp2(std::floor(std::log2(static_cast<double>(available))));
}

// Returns the bytes (in float32) that one segment needs in the layer that needs most.
double bytes_per_segment(const net::Network& network, const net::Geometry& geometry) {
  double numbers = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const net::Network layer = network.of_scale(stage.scale);
    const auto d_model = static_cast<double>(layer.d_model);
    const auto d_heads = static_cast<double>(layer.n_head * layer.d_head);
    const auto segment = static_cast<double>(stage.segment);
    const auto window = static_cast<double>(stage.window());
    // With a reset at documents, keys and values are held twice: as computed, and with the keys and
    // values of other documents replaced.
    const double keys_values = (network.reset_memory_at_documents ? 4 : 2) * window * d_heads;
    const double attention = keys_values + net::attention_cost(network, stage).held +
                             3 * static_cast<double>(stage.segment_keys()) * d_heads;
    const double feed_forward = 2 * segment * static_cast<double>(layer.d_inner);
    numbers = std::max(
        numbers, std::max(attention, feed_forward) + window * d_model + 6 * segment * d_model);
  }
  // The up-sampled states of every scale are held until the scales are averaged.
  const auto scales = static_cast<double>(geometry.outputs.size());
  return 4 * (numbers + scales * static_cast<double>(geometry.lengths.segment) *
                            static_cast<double>(network.d_model));
}

}  // namespace

std::int64_t segments_of_chunk(const nn::ModelAtLengths& model, std::int64_t tokens) {
  if (tokens > 0) return std::max<std::int64_t>(1, tokens / model.geometry().lengths.segment);
  const double bytes = model.model().options().device().is_cpu()
                           ? std::min(kMostBytes, kShareOfAvailable * steadily_available_bytes())
                           : kDeviceBytes;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(bytes /
                                   bytes_per_segment(model.model().network(), model.geometry())));
}

}  // namespace ql::eval
