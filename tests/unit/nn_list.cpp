// The model against the list of all its states, over many geometries.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "net/cost.h"
#include "net/network.h"
#include "nn_list_oracle.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql::test {
namespace {

struct Case {
  net::Architecture architecture;
  std::vector<std::int64_t> scales;
  std::int64_t output_layers;
  net::Lengths lengths;
  std::int64_t rate;
};

constexpr auto kQl = net::Architecture::kTransformerQl;
constexpr auto kXl = net::Architecture::kTransformerXl;
constexpr auto kMultiScale = net::Architecture::kMultiScale;
constexpr auto kVanilla = net::Architecture::kVanilla;
constexpr auto kCompressive = net::Architecture::kCompressive;

const Case kCases[] = {
    {kQl, {2, 1}, 1, {4, 4, 0}, 2},     // all lengths equal
    {kQl, {1, 1}, 0, {4, 12, 0}, 2},    // segments of scale 2 recompute old states; no output block
    {kQl, {1, 1}, 1, {8, 4, 0}, 2},     // memory < segment
    {kQl, {2, 1}, 1, {8, 0, 0}, 2},     // no memory at scale 1, but at scale 2
    {kQl, {1, 2, 1}, 1, {4, 4, 0}, 2},  // three scales
    {kQl, {1, 1, 1}, 2, {8, 16, 0}, 2},  // three scales, long memory
    {kQl, {1, 1}, 1, {8, 24, 0}, 4},     // rate 4
    {kQl, {2, 1}, 1, {3, 9, 0}, 3},      // rate 3
    {kQl, {1, 1, 1}, 1, {9, 3, 0}, 3},   // rate 3 three times
    {kQl, {1, 1}, 1, {2, 0, 0}, 2},      // the smallest
    {kQl, {2}, 1, {3, 2, 0}, 2},         // one scale and an output block
    {kXl, {3}, 0, {3, 5, 0}, 2},
    {kXl, {2}, 0, {1, 4, 0}, 2},
    {kXl, {2}, 0, {4, 1, 0}, 2},
    {kXl, {2}, 0, {4, 0, 0}, 2},
    {kMultiScale, {1, 1}, 1, {6, 0, 0}, 2},
    {kMultiScale, {1, 2, 1}, 1, {8, 0, 0}, 2},
    {kMultiScale, {1, 1}, 1, {6, 0, 0}, 3},
    {kVanilla, {2}, 0, {5, 0, 0}, 2},
    {kVanilla, {2}, 0, {1, 0, 0}, 2},
    {kCompressive, {2}, 0, {4, 6, 4}, 2},
    {kCompressive, {2}, 0, {4, 2, 3}, 2},  // memory < segment
    {kCompressive, {2}, 0, {6, 0, 5}, 3},  // no memory
    {kCompressive, {2}, 0, {4, 5, 1}, 2},  // fewer than a step compresses
    {kCompressive, {2}, 0, {4, 5, 0}, 2},  // none: Transformer-XL
    {kCompressive, {2}, 0, {6, 4, 4}, 2},  // more than one step's, no multiple of it
    {kCompressive, {2}, 0, {6, 0, 4}, 2},  // the same without memory
    {kCompressive, {1}, 0, {3, 7, 2}, 3},  // a step becomes one state
};

int variants_of(const Case& entry) { return entry.architecture == kCompressive ? 8 : 4; }

net::Network network_of(const Case& entry, int variant) {
  net::Network network =
      small_network(entry.architecture, entry.scales, entry.output_layers, entry.lengths);
  network.rate = entry.rate;
  network.pre_lnorm = variant % 2 == 0;
  network.untie_r = variant / 2 == 0;
  network.pool = variant == 1 || variant == 2 ? net::Pool::kMean : net::Pool::kMax;
  if (entry.architecture == kCompressive && variant > 1) {
    network.pool = variant < 4   ? net::Pool::kConvolution
                   : variant < 6 ? net::Pool::kDilatedConvolution
                                 : net::Pool::kMostUsed;
  }
  return network;
}

// The ways to attend, besides that of the paper.
enum class Way {
  kClamped,
  kShaw,
  kAbsolute,
  kSameLength,
  kWindow,
  kDilatedWindow,
  kLinear,
  kLinearAbsolute
};
constexpr Way kWays[] = {Way::kClamped, Way::kShaw,          Way::kAbsolute, Way::kSameLength,
                         Way::kWindow,  Way::kDilatedWindow, Way::kLinear,   Way::kLinearAbsolute};

// False where the network cannot attend so.
bool attend_so(Way way, net::Network& network) {
  const bool absolute = way == Way::kAbsolute || way == Way::kLinearAbsolute;
  if (absolute && network.architecture != kVanilla) {
    return false;
  }
  if (way == Way::kSameLength && network.lengths.memory == 0) {
    return false;
  }
  if (way == Way::kLinear && network.pool == net::Pool::kMostUsed) {
    return false;
  }
  if (absolute) {
    network.encoding = net::Encoding::kAbsolute;
  }
  if (way == Way::kShaw) {
    network.encoding = net::Encoding::kShaw;
  }
  network.clamp_len = way == Way::kClamped || way == Way::kShaw ? 3 : -1;
  network.same_length = way == Way::kSameLength;
  network.attention_window = way == Way::kWindow ? 3 : way == Way::kDilatedWindow ? 2 : 0;
  if (way == Way::kDilatedWindow) {
    network.attention_dilation = {1, 3};
  }
  if (way == Way::kLinear || way == Way::kLinearAbsolute) {
    network.attention = net::Attention::kLinear;
  }
  return true;
}

std::vector<net::Network> all_networks() {
  std::vector<net::Network> all;
  for (const Case& entry : kCases) {
    for (int variant = 0; variant < variants_of(entry); ++variant) {
      all.push_back(network_of(entry, variant));
    }
    int variant = 0;
    for (const Way way : kWays) {
      net::Network network = network_of(entry, variant++ % 4);
      if (attend_so(way, network)) {
        all.push_back(network);
      }
    }
  }
  return all;
}

// The losses of two streams, so that a mix-up of streams would show, against the oracle's.
void check_losses(const nn::Model& model, const net::Lengths& lengths, std::int64_t length,
                  std::uint64_t seed) {
  const std::int64_t vocab_size = model.network().vocab_size;
  const at::Tensor tokens = random_tokens(2, length, vocab_size, seed);
  const at::Tensor targets = random_tokens(2, length, vocab_size, seed + 1000);
  const at::Tensor losses = read_streams(model, lengths, tokens, targets);
  CAPTURE(net::to_text(model.network().architecture));
  CAPTURE(net::to_text(model.network().pool));
  CAPTURE(lengths.segment);
  CAPTURE(lengths.memory);
  CAPTURE(lengths.compressed_memory);
  CAPTURE(model.network().scales.size());
  CAPTURE(seed);
  for (std::int64_t stream = 0; stream < 2; ++stream) {
    const auto list = [&](const at::Tensor& ids) {
      const auto* data = ids.data_ptr<std::int64_t>() + stream * length;
      return std::vector<std::int64_t>(data, data + length);
    };
    ListOracle oracle(model);
    std::vector<double> expected = oracle.losses(lengths, list(tokens), list(targets));
    const at::Tensor wanted = at::from_blob(expected.data(), {length}, at::kDouble);
    CHECK(largest_difference(losses[stream], wanted) < 1e-9);
  }
}

// One stream through forward_stream() in chunks of `segments` segments.
at::Tensor read_chunks(const nn::Model& model, const net::Lengths& lengths,
                       const at::Tensor& tokens, std::int64_t segments) {
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(1);
  const at::Tensor rows = tokens.view({-1, lengths.segment});
  std::vector<at::Tensor> states;
  for (std::int64_t row = 0; row < rows.size(0); row += segments) {
    const std::int64_t count = std::min(segments, rows.size(0) - row);
    states.push_back(at_lengths.forward_stream(rows.narrow(0, row, count), memory));
  }
  return at::cat(states).flatten(0, 1);
}

}  // namespace

TEST_CASE("layer by layer, the states are those of step by step") {
  std::uint64_t seed = 0;
  for (const net::Network& network : all_networks()) {
    CAPTURE(net::network_to_json(network).dump());
    const net::Lengths& lengths = network.lengths;
    const nn::Model model = random_model(network, ++seed);
    CHECK(model.parameter_count() == net::cost(network, lengths).parameters);
    const std::int64_t length = lengths.segment * 11;
    const at::Tensor tokens = random_tokens(1, length, network.vocab_size, seed);
    const at::Tensor expected = read_chunks(model, lengths, tokens, 11);
    {
      const at::NoGradGuard no_gradient;
      const nn::ModelAtLengths at_lengths(model, lengths);
      nn::Memory memory = at_lengths.start_memory(1);
      for (std::int64_t start = 0; start < length; start += lengths.segment) {
        const at::Tensor states =
            at_lengths.forward(tokens.narrow(1, start, lengths.segment), memory, {});
        CHECK(largest_difference(states[0], expected.narrow(0, start, lengths.segment)) < 1e-11);
      }
    }
    for (const std::int64_t segments : {1, 2, 3, 7}) {
      CHECK(largest_difference(read_chunks(model, lengths, tokens, segments), expected) < 1e-11);
    }
  }
}

TEST_CASE("the model's losses equal those of the list of all states") {
  std::uint64_t seed = 0;
  for (const net::Network& network : all_networks()) {
    CAPTURE(net::network_to_json(network).dump());
    const nn::Model model = random_model(network, ++seed);
    check_losses(model, network.lengths, network.lengths.segment * 6, seed);
  }
}

TEST_CASE("a Compressive Transformer's lengths need not be those of training") {
  std::uint64_t seed = 0;
  const Case trained{kCompressive, {2}, 0, {4, 5, 2}, 2};
  for (int variant = 0; variant < variants_of(trained); ++variant) {
    const nn::Model model = random_model(network_of(trained, variant), ++seed);
    for (const net::Lengths lengths : {net::Lengths{8, 2, 7}, {2, 9, 3}, {6, 0, 4}, {4, 4, 0}}) {
      check_losses(model, lengths, 48, seed);
    }
  }
}

TEST_CASE("a dilated convolution of a step that becomes one state is a convolution") {
  net::Network network = small_network(kCompressive, {2}, 0, {3, 4, 2});
  network.rate = 3;
  const auto losses = [&](net::Pool pool, const net::Lengths& lengths) {
    network.pool = pool;
    const nn::Model model = random_model(network, 3);
    return read_streams(model, lengths, random_tokens(2, 24, 11, 1), random_tokens(2, 24, 11, 2));
  };
  const auto difference = [&](const net::Lengths& lengths) {
    return largest_difference(losses(net::Pool::kConvolution, lengths),
                              losses(net::Pool::kDilatedConvolution, lengths));
  };
  CHECK(difference({3, 4, 2}) == 0);
  CHECK(difference({6, 4, 2}) > 1e-3);
}

}  // namespace ql::test
