// Draws networks of all the family for the tests of lib/nn, at random with a fixed seed, with all
// values of their keys, at many lengths.
#pragma once

#include <cstdint>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn_support.h"

namespace ql::test {

// Returns networks each of which has an edge case of its own.
inline std::vector<net::Network> edge_cases() {
  std::vector<net::Network> all;
  const auto add = [&](net::Architecture architecture, std::vector<std::int64_t> scales,
                       std::int64_t output_layers, net::Lengths lengths, std::int64_t rate = 2) {
    all.push_back(small_network(architecture, std::move(scales), output_layers, lengths));
    all.back().rate = rate;
  };
  add(kQl, {2, 1}, 1, {4, 4, 0});      // all lengths are equal
  add(kQl, {1, 1}, 0, {4, 12, 0});     // scale 2 computes old states again; no output layers
  add(kQl, {1, 1}, 1, {8, 4, 0});      // the memory is shorter than the segment
  add(kQl, {2, 1}, 1, {8, 0, 0});      // there is a memory only at scale 2
  add(kQl, {1, 2, 1}, 1, {4, 4, 0});   // three scales
  add(kQl, {1, 1, 1}, 2, {8, 16, 0});  // three scales and a long memory
  add(kQl, {1, 1}, 1, {8, 24, 0}, 4);
  add(kQl, {2, 1}, 1, {3, 9, 0}, 3);
  add(kQl, {1, 1, 1}, 1, {9, 3, 0}, 3);
  add(kQl, {1, 1}, 1, {2, 0, 0});  // the smallest
  add(kQl, {2}, 1, {3, 2, 0});     // one scale and an output layer
  add(kXl, {3}, 0, {3, 5, 0});
  add(kXl, {2}, 0, {1, 4, 0});
  add(kXl, {2}, 0, {4, 1, 0});
  add(kXl, {2}, 0, {4, 0, 0});
  add(kMultiScale, {1, 1}, 1, {6, 0, 0});
  add(kMultiScale, {1, 2, 1}, 1, {8, 0, 0});
  add(kMultiScale, {1, 1}, 1, {6, 0, 0}, 3);
  add(net::Architecture::kVanilla, {2}, 0, {5, 0, 0});
  add(net::Architecture::kVanilla, {2}, 0, {1, 0, 0});
  add(kCompressive, {2}, 0, {4, 6, 4});
  add(kCompressive, {2}, 0, {4, 2, 3});     // the memory is shorter than the segment
  add(kCompressive, {2}, 0, {6, 0, 5}, 3);  // there is none
  add(kCompressive, {2}, 0, {4, 5, 1});     // a step compresses more than is kept
  add(kCompressive, {2}, 0, {4, 5, 0});     // nothing is kept
  add(kCompressive, {2}, 0, {6, 4, 4});     // more is kept than a step compresses
  add(kCompressive, {2}, 0, {6, 0, 4});
  add(kCompressive, {1}, 0, {3, 7, 2}, 3);  // a step becomes one state
  return all;
}

// Draws random numbers that are the same on every machine.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : generator_(seed) {}

  std::int64_t up_to(std::int64_t most) {
    return static_cast<std::int64_t>(generator_() % static_cast<std::uint32_t>(most + 1));
  }
  bool coin() { return up_to(1) == 1; }
  template <typename Value>
  Value any() {
    return static_cast<Value>(up_to(static_cast<std::int64_t>(names_of(Value()).size()) - 1));
  }

  // Draws any architecture, scales, rate and lengths.
  net::Network shape() {
    const auto architecture = any<net::Architecture>();
    const bool scaled = has_scales(architecture);
    std::vector<std::int64_t> scales(static_cast<std::size_t>(scaled ? 1 + up_to(2) : 1));
    for (std::int64_t& layers : scales) layers = 1 + up_to(1);
    net::Network network = small_network(architecture, scales, scaled ? up_to(2) : 0, {});
    network.rate = 2 + up_to(2);
    network.lengths = lengths(network);
    return network;
  }

  net::Lengths lengths(const net::Network& network) {
    return net::nearest_valid_lengths(network, {1 + up_to(10), up_to(12), up_to(6)}).back();
  }

  // Draws the other keys until they fit together.
  net::Network keys(const net::Network& shape) {
    for (;;) {
      net::Network network = shape;
      // Keys that are true or false, and those with names. Some are drawn again below, because
      // otherwise few networks would fit together.
      keys_of(network)(network, [&](const char*, auto& value, const Range& = {}, unsigned = 0) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) value = coin();
        if constexpr (std::is_enum_v<Value>) value = any<Value>();
      });
      network.architecture = shape.architecture;
      network.query_only_pooling = network.scales.size() > 1 && up_to(2) == 0;
      network.compression_loss =
          static_cast<net::CompressionLoss>(up_to(network.learns_compression() ? 1 : 0));
      network.reset_memory_at_documents = keeps_memory(network.architecture) && coin();
      network.clamp_len = coin() ? 3 : -1;
      network.attention = static_cast<net::Attention>(up_to(3) / 3);
      network.learned_join = network.scales.size() > 1 && up_to(2) == 0;
      if (network.scales.size() > 1 && up_to(2) == 0) {
        for (std::int64_t& width : network.scale_widths = network.scales) {
          width = network.d_model / 2 * (2 + up_to(2));
        }
        network.scale_widths.front() = network.d_model;
      }
      network.same_length = keeps_memory(network.architecture) && up_to(2) == 0;
      network.attention_window = up_to(2) == 0 ? 1 + up_to(4) : 0;
      if (network.attention_window > 0 && coin()) {
        network.attention_dilation = {1 + up_to(2), 1 + up_to(2)};
      }
      const std::vector<std::int64_t> cutoffs[] = {{}, {3, 7}, {1, 2, 3}};
      const std::int64_t widths[] = {0, 6, 16};
      network.cutoffs = cutoffs[up_to(2)];
      network.div_val = 1 + up_to(1);
      network.d_embed = widths[up_to(2)];
      network.proj_init_std = 0.5;
      if (coin()) {
        network.tie_projs.resize(network.cutoffs.size() + 1);
        for (auto tied : network.tie_projs) tied = coin();
      }
      try {
        network.check();
        net::make_geometry(network, network.lengths);
        return network;
      } catch (const ConfigError&) {
      }
    }
  }

 private:
  std::mt19937 generator_;
};

// Draws `of_each_edge` networks for every edge case, three times as many for the architectures with
// the most pools (Compressive) and the fewest edge cases (vanilla), and `others` of other shapes.
inline std::vector<net::Network> drawn_networks(std::uint32_t seed, int of_each_edge, int others) {
  Draw draw(seed);
  std::vector<net::Network> all;
  for (const net::Network& shape : edge_cases()) {
    const bool more = shape.architecture == net::Architecture::kCompressive ||
                      shape.architecture == net::Architecture::kVanilla;
    for (int i = 0; i < of_each_edge * (more ? 3 : 1); ++i) all.push_back(draw.keys(shape));
  }
  for (int i = 0; i < others; ++i) all.push_back(draw.keys(draw.shape()));
  return all;
}

}  // namespace ql::test
