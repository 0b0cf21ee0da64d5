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

// A thread takes this many states of a chunk through a layer at a time, as far as that needs them
// alone.
constexpr double kStatesOfPiece = 512;
constexpr double kFloat = 4;

struct LayerSize {
  LayerSize(const net::Network& network, const net::Stage& stage) {
    const net::Network of_stage = network.of_scale(stage.scale);
    d_model = static_cast<double>(of_stage.d_model);
    d_heads = static_cast<double>(of_stage.n_head * of_stage.d_head);
    d_inner = static_cast<double>(of_stage.d_inner);
  }

  // The numbers of a segment of a chunk: states before and after the layer, and keys and values. An
  // output has a window of its own for every segment.
  double of_chunk(const net::Network& network, const net::Stage& stage) const {
    const auto segment = static_cast<double>(stage.segment);
    const auto keys = static_cast<double>(stage.segment_keys());
    const auto memory = static_cast<double>(stage.memory + stage.compressed_memory);
    if (!stage.feeds_layer()) {
      return (stage.memory > 0 ? memory + 2 * segment : segment) * d_model;
    }
    double keys_values = keys;
    // A memory takes a part of the segment's states, or others.
    if (stage.memory > 0 && (stage.keys_per_state > 1 || stage.shift < stage.segment)) {
      keys_values += static_cast<double>(stage.shift);
    }
    double states = 2 * segment;
    if (stage.compressed_memory > 0) {
      const double compressed = segment / static_cast<double>(network.rate);
      states += static_cast<double>(stage.memory) + segment + compressed;
      keys_values += 2 * compressed;
    }
    // With those of other documents replaced, the memories have keys and values of their own.
    if (network.reset_memory_at_documents) keys_values += memory;
    return states * d_model + 2 * keys_values * d_heads;
  }

  // The numbers of a state inside the layer: normalized, queries, sums, inner states, results.
  double of_state() const { return 4 * d_model + 2 * d_heads + d_inner; }

  double d_model = 0, d_heads = 0, d_inner = 0;
};

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
  // Embedded tokens, or the up-sampled states of every scale, which wait for their average.
  const auto scales = static_cast<double>(geometry.outputs.size());
  numbers += scales * static_cast<double>(segment * network.d_model);
  const double states_of_pieces = std::min(static_cast<double>(threads) * kStatesOfPiece,
                                           static_cast<double>(segments * segment));
  return static_cast<std::int64_t>(
      kFloat * (static_cast<double>(segments) * numbers + states_of_pieces * of_pieces));
}

std::int64_t groups_of_columns(const net::Geometry& geometry, std::int64_t columns) {
  // With fewer tokens in a group, a product's packing costs as much as its operations. Two groups
  // give two threads work where there are two columns.
  constexpr std::int64_t kFewestTokens = 128, kFewestGroups = 2;
  return std::min(columns,
                  std::max(kFewestGroups, columns * geometry.lengths.segment / kFewestTokens));
}

std::int64_t columns_bytes(const net::Network& network, const net::Geometry& geometry,
                           std::int64_t columns, int threads, std::int64_t cursor_bytes) {
  const std::int64_t groups = groups_of_columns(geometry, columns);
  // The columns of the groups that are under way: those have new memories besides the old ones.
  const std::int64_t running =
      std::min<std::int64_t>(groups, threads) * ((columns + groups - 1) / groups);
  const auto tokens = static_cast<double>(geometry.lengths.segment * network.d_model);
  double windows = 0, layers = 0;
  for (const net::Stage& stage : geometry.stages) {
    const LayerSize layer(network, stage);
    // A memory is a view of the window that it was in.
    const auto states = static_cast<double>(stage.memory > 0 ? stage.memory + stage.segment : 0);
    const auto window = static_cast<double>(stage.window());
    windows += (states + static_cast<double>(2 * stage.compressed_memory)) * layer.d_model;
    double attention = window * (2 * layer.d_model + 2 * layer.d_heads);
    if (network.attention == net::Attention::kLinear && stage.feeds_layer()) {
      attention += net::attention_cost(network, stage).held;
    }
    layers = std::max(layers, attention + static_cast<double>(stage.segment) * layer.of_state());
  }
  layers += static_cast<double>(geometry.outputs.size()) * tokens;
  // The states of all columns wait for their losses.
  const double numbers = static_cast<double>(columns) * (windows + 2 * tokens) +
                         static_cast<double>(running) * (windows + layers);
  return static_cast<std::int64_t>(kFloat * numbers) + columns * cursor_bytes;
}

std::int64_t columns_that_fit(const net::Network& network, const net::Geometry& geometry,
                              std::int64_t columns, int threads, std::int64_t cursor_bytes,
                              std::int64_t available) {
  std::int64_t least = 1;
  for (std::int64_t most = columns; least < most;) {
    const std::int64_t middle = least + (most - least + 1) / 2;
    if (columns_bytes(network, geometry, middle, threads, cursor_bytes) <= available) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

}  // namespace ql::eval
