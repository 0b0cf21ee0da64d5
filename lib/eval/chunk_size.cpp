// Counts the bytes that segments of a stream take in a layer, and how many fit.

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

// LayerwiseStep (nn/step.h) takes this many states per thread through a layer at a time. A longer
// segment is not divided, but this estimate ignores that.
constexpr double kStatesOfPiece = 512;
constexpr double kFloat = 4;

struct LayerSize {
  LayerSize(const net::Network& network, const net::Stage& stage) {
    const net::Network of_stage = network.of_scale(stage.scale);
    d_model = static_cast<double>(of_stage.d_model);
    d_heads = static_cast<double>(of_stage.n_head * of_stage.d_head);
    d_inner = static_cast<double>(of_stage.d_inner);
  }

  // Several segments go through a layer together. Returns the number of elements that `stage` needs
  // for each of these segments. If the stage feeds a layer, it needs the states before and after
  // the layer, the keys and the values. Otherwise it needs its states and, if it has a memory, a
  // window.
  double of_chunk(const net::Network& network, const net::Stage& stage) const {
    const auto segment = static_cast<double>(stage.segment);
    const auto keys = static_cast<double>(stage.segment_keys());
    const auto memory = static_cast<double>(stage.memory + stage.compressed_memory);
    if (!stage.feeds_layer()) {
      return (stage.memory > 0 ? memory + 2 * segment : segment) * d_model;
    }
    double keys_values = keys;
    // In these cases the keys and values of states that enter the memory are held a second time
    // (LayerwiseStep::layer() in nn/step.cpp).
    if (stage.memory > 0 && (stage.keys_per_state > 1 || stage.new_states < stage.segment)) {
      keys_values += static_cast<double>(stage.new_states);
    }
    double states = 2 * segment;
    if (stage.compressed_memory > 0) {
      const double compressed = segment / static_cast<double>(network.rate);
      states += static_cast<double>(stage.memory) + segment + compressed;
      keys_values += 2 * compressed;
    }
    // To reset a memory at documents, some of its keys and values are replaced. So each segment has
    // its own copy of the keys and values of its memory.
    if (network.reset_memory_at_documents) keys_values += memory;
    return states * d_model + 2 * keys_values * d_heads;
  }

  // Returns the number of elements that one state needs inside the layer: normalized states,
  // queries, sums, inner states and results.
  double of_state() const { return 4 * d_model + 2 * d_heads + d_inner; }

  double d_model = 0, d_heads = 0, d_inner = 0;
};

}  // namespace

double bytes_per_segment(const net::Network& network, const net::Geometry& geometry) {
  double numbers = 0;
  for (const net::Stage& stage : geometry.stages) {
    if (!stage.feeds_layer()) continue;
    const LayerSize layer(network, stage);
    const auto segment = static_cast<double>(stage.segment);
    const auto window = static_cast<double>(stage.window());
    // With a reset at documents, keys and values are held twice: as computed, and with the keys and
    // values of other documents replaced.
    const double keys_values = (network.reset_memory_at_documents ? 4 : 2) * window * layer.d_heads;
    const double attention = keys_values + net::attention_cost(network, stage).held +
                             3 * static_cast<double>(stage.segment_keys()) * layer.d_heads;
    const double feed_forward = 2 * segment * layer.d_inner;
    numbers = std::max(numbers, std::max(attention, feed_forward) + window * layer.d_model +
                                    6 * segment * layer.d_model);
  }
  // The up-sampled states of every scale are held until the scales are averaged.
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
                         std::int64_t tokens, int threads) {
  const std::int64_t segment = geometry.lengths.segment;
  const std::int64_t segments =
      std::min((tokens + segment - 1) / segment, automatic_segments(network, geometry, c10::kCPU));
  double numbers = 0, of_pieces = 0;
  for (const net::Stage& stage : geometry.stages) {
    const LayerSize layer(network, stage);
    numbers = std::max(numbers, layer.of_chunk(network, stage));
    of_pieces = std::max(of_pieces, layer.of_state());
  }
  // First the embedded tokens are held, and later the up-sampled states of every scale, until the
  // scales are averaged.
  const auto scales = static_cast<double>(geometry.outputs.size());
  numbers += scales * static_cast<double>(segment * network.d_model);
  const double states_of_pieces = std::min(static_cast<double>(threads) * kStatesOfPiece,
                                           static_cast<double>(segments * segment));
  return static_cast<std::int64_t>(
      kFloat * (static_cast<double>(segments) * numbers + states_of_pieces * of_pieces));
}

}  // namespace ql::eval
