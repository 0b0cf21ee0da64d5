// Memory that is reset at documents: against the list of all states, against documents that are
// read alone, step by step and layer by layer.
#include "nn/document_reset_internal.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "nn_list_oracle.h"
#include "nn_support.h"
#include "torch_doctest.h"

namespace ql::test {
namespace {

using Starts = std::vector<std::int64_t>;

constexpr auto kQl = net::Architecture::kTransformerQl;
constexpr auto kXl = net::Architecture::kTransformerXl;
constexpr auto kCompressive = net::Architecture::kCompressive;

struct Case {
  net::Architecture architecture;
  std::vector<std::int64_t> scales;
  std::int64_t output_layers;
  net::Lengths lengths;
  std::int64_t rate;
};

const Case kCases[] = {
    {kXl, {3}, 0, {3, 5, 0}, 2},
    {kXl, {2}, 0, {1, 4, 0}, 2},
    {kXl, {2}, 0, {4, 0, 0}, 2},
    {kQl, {2, 1}, 1, {4, 4, 0}, 2},
    {kQl, {1, 1}, 0, {4, 12, 0}, 2},  // segments of scale 2 recompute old states
    {kQl, {1, 1}, 1, {8, 4, 0}, 2},
    {kQl, {2, 1}, 1, {8, 0, 0}, 2},  // no memory at scale 1, but at scale 2
    {kQl, {1, 1, 1}, 1, {4, 8, 0}, 2},
    {kQl, {2, 1}, 1, {3, 9, 0}, 3},
    {kQl, {2}, 1, {3, 2, 0}, 2},
    {kCompressive, {2}, 0, {4, 6, 4}, 2},
    {kCompressive, {2}, 0, {4, 2, 3}, 2},
    {kCompressive, {2}, 0, {6, 0, 5}, 3},
    {kCompressive, {2}, 0, {4, 5, 1}, 2},
};

constexpr int kVariants = 7;

// Variants of a case, each with other weights.
nn::Model model_of(const Case& entry, int variant, bool resets) {
  net::Network network =
      small_network(entry.architecture, entry.scales, entry.output_layers, entry.lengths);
  network.rate = entry.rate;
  network.pre_lnorm = variant % 2 == 0;
  network.pool = variant == 1 || variant == 2 ? net::Pool::kMean : net::Pool::kMax;
  if (entry.architecture == kCompressive && variant > 1) {
    constexpr net::Pool kPools[] = {net::Pool::kConvolution, net::Pool::kConvolution,
                                    net::Pool::kDilatedConvolution, net::Pool::kMostUsed,
                                    net::Pool::kMean};
    network.pool = kPools[variant - 2];
  }
  if (variant == 4) {
    network.attention_window = 5;
  } else if (variant == 6) {
    network.attention = net::Attention::kLinear;
  }
  network.reset_memory_at_documents = resets;
  return random_model(network, static_cast<std::uint64_t>(variant) + 1);
}

// The start of the document of token `position`, one after the other.
std::int64_t age_of(const Starts& starts, std::int64_t position) {
  std::int64_t age = 0;
  for (std::int64_t token = 1; token <= position; ++token) {
    age = std::count(starts.begin(), starts.end(), token) > 0 ? 0 : age + 1;
  }
  return age;
}

// The states [streams, length, d_model] of streams whose documents start at `starts`, each.
at::Tensor read(const nn::Model& model, const net::Lengths& lengths, const at::Tensor& tokens,
                const std::vector<Starts>& starts) {
  const at::NoGradGuard no_gradient;
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(tokens.size(0));
  std::vector<at::Tensor> states;
  for (std::int64_t begin = 0; begin < tokens.size(1); begin += lengths.segment) {
    nn::StepOptions step;
    for (std::size_t row = 0; model.network().reset_memory_at_documents && row < starts.size();
         ++row) {
      step.ages.push_back(age_of(starts[row], begin));
    }
    states.push_back(at_lengths.forward(tokens.narrow(1, begin, lengths.segment), memory, step));
  }
  return at::cat(states, 1);
}

// One stream through forward_stream() in chunks of `segments` segments.
at::Tensor read_chunks(const nn::Model& model, const net::Lengths& lengths,
                       const at::Tensor& tokens, const Starts& starts, std::int64_t segments) {
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(1);
  const at::Tensor rows = tokens.view({-1, lengths.segment});
  std::vector<at::Tensor> states;
  for (std::int64_t row = 0; row < rows.size(0); row += segments) {
    const std::int64_t count = std::min(segments, rows.size(0) - row);
    std::vector<std::int64_t> ages;
    for (std::int64_t i = row; i < row + count; ++i) {
      ages.push_back(age_of(starts, i * lengths.segment));
    }
    states.push_back(at_lengths.forward_stream(rows.narrow(0, row, count), memory, ages));
  }
  return at::cat(states).flatten(0, 1).unsqueeze(0);
}

// Somewhere in segments, at their first tokens, short ones and one that ends with the stream.
std::vector<Starts> some_starts(std::int64_t segment, std::int64_t length) {
  return {{0, segment + 1, 3 * segment, 3 * segment + 1, 6 * segment - 1},
          {2 * segment, 3 * segment, 7 * segment - segment / 2, length - 1}};
}

template <typename Check>
void for_every_model(const Check& check) {
  for (const Case& entry : kCases) {
    for (int variant = 0; variant < kVariants; ++variant) {
      CAPTURE(net::to_text(entry.architecture));
      CAPTURE(entry.lengths.segment);
      CAPTURE(entry.lengths.memory);
      CAPTURE(entry.scales.size());
      CAPTURE(variant);
      check(entry, variant);
    }
  }
}

}  // namespace

TEST_CASE("with documents, the losses equal those of the list of all states") {
  for_every_model([](const Case& entry, int variant) {
    const nn::Model model = model_of(entry, variant, true);
    const std::int64_t length = entry.lengths.segment * 8;
    const at::Tensor tokens = random_tokens(2, length, 11, 3),
                     targets = random_tokens(2, length, 11, 4);
    const std::vector<Starts> starts = some_starts(entry.lengths.segment, length);
    const at::Tensor losses =
        model.losses(read(model, entry.lengths, tokens, starts), targets).detach();
    for (std::int64_t stream = 0; stream < 2; ++stream) {
      const auto list = [&](const at::Tensor& ids) {
        const auto* data = ids.data_ptr<std::int64_t>() + stream * length;
        return std::vector<std::int64_t>(data, data + length);
      };
      ListOracle oracle(model);
      std::vector<double> expected = oracle.losses(entry.lengths, list(tokens), list(targets),
                                                   starts[static_cast<std::size_t>(stream)]);
      CHECK(largest_difference(losses[stream],
                               at::from_blob(expected.data(), {length}, at::kDouble)) < 1e-9);
    }
  });
}

TEST_CASE("with documents, layer by layer is step by step") {
  for_every_model([](const Case& entry, int variant) {
    const nn::Model model = model_of(entry, variant, true);
    const std::int64_t length = entry.lengths.segment * 12;
    const at::Tensor tokens = random_tokens(1, length, 11, 5);
    for (const Starts& starts : some_starts(entry.lengths.segment, length)) {
      const at::Tensor expected = read(model, entry.lengths, tokens, {starts});
      for (const std::int64_t segments : {1, 2, 5, 12}) {
        CHECK(largest_difference(read_chunks(model, entry.lengths, tokens, starts, segments),
                                 expected) < 1e-11);
      }
    }
  });
}

TEST_CASE("a document that begins with a segment is read as if it stood alone") {
  for_every_model([](const Case& entry, int variant) {
    const nn::Model resets = model_of(entry, variant, true);
    const nn::Model plain = model_of(entry, variant, false);
    const std::int64_t segment = entry.lengths.segment, length = segment * 12;
    const at::Tensor tokens = random_tokens(1, length, 11, 7);
    // The first document reads what a network without the key reads; so do the others.
    const Starts starts = {0, 5 * segment, 6 * segment, 12 * segment};
    const at::Tensor states = read(resets, entry.lengths, tokens, {starts});
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const std::int64_t count = starts[i + 1] - starts[i];
      const at::Tensor alone = read(plain, entry.lengths, tokens.narrow(1, starts[i], count), {{}});
      CHECK(largest_difference(states.narrow(1, starts[i], count), alone) < 1e-12);
    }
  });
}

TEST_CASE("no token before a document that begins with a segment reaches it") {
  for_every_model([](const Case& entry, int variant) {
    const std::int64_t segment = entry.lengths.segment, length = segment * 8, start = 4 * segment;
    const at::Tensor tokens = random_tokens(1, length, 11, 9);
    const at::Tensor others = tokens.clone();
    others.narrow(1, 0, start).add_(1).remainder_(11);
    const auto moved = [&](bool resets) {
      const nn::Model model = model_of(entry, variant, resets);
      return !at::equal(
          read(model, entry.lengths, tokens, {{start}}).narrow(1, start, length - start),
          read(model, entry.lengths, others, {{start}}).narrow(1, start, length - start));
    };
    CHECK(!moved(true));
    const bool remembers =
        entry.lengths.memory > 0 || entry.lengths.compressed_memory > 0 || entry.scales.size() > 1;
    CHECK(moved(false) == remembers);
  });
}

TEST_CASE("ages are given exactly for networks that reset their memory") {
  const nn::Model resets = model_of(kCases[0], 0, true), plain = model_of(kCases[0], 0, false);
  const at::Tensor tokens = random_tokens(2, 3, 11, 1);
  const auto forward = [&](const nn::Model& model, const std::vector<std::int64_t>& ages) {
    const nn::ModelAtLengths at_lengths(model, kCases[0].lengths);
    nn::Memory memory = at_lengths.start_memory(2);
    nn::StepOptions step;
    step.ages = ages;
    at_lengths.forward(tokens, memory, step);
    memory = at_lengths.start_memory(1);
    at_lengths.forward_stream(tokens, memory, ages);
  };
  CHECK_NOTHROW(forward(resets, {0, 3}));
  CHECK_NOTHROW(forward(plain, {}));
  CHECK_THROWS_AS(forward(resets, {}), ConfigError);
  CHECK_THROWS_AS(forward(resets, {0}), ConfigError);
  CHECK_THROWS_AS(forward(resets, {0, -1}), ConfigError);
  CHECK_THROWS_WITH_AS(forward(plain, {0, 3}), doctest::Contains("expected 0"), ConfigError);
}

}  // namespace ql::test
