// Compares oldest_dependencies() with an oracle: sets of tokens, carried through the steps from an
// empty start, in lists of all states of all times. It is slow and obvious, and uses no formula of
// lib/net.
#include <doctest/doctest.h>

#include <bitset>
#include <deque>
#include <map>
#include <random>

#include "net/context.h"
#include "net/geometry.h"
#include "unit/net_networks.h"

using namespace ql::net;
using namespace ql::net::testing;

namespace {

constexpr std::int64_t kTokens = 1024;
using TokenSet = std::bitset<kTokens>;

// Remembers the states of one place. They are numbered through the complete stream: state q stands
// for the tokens q * g .. q * g + g - 1. A number that was never written is a zero state without
// tokens.
class History {
 public:
  TokenSet at(std::int64_t number) const {
    const auto found = states_.find(number);
    return found == states_.end() ? TokenSet() : found->second;
  }
  void write(std::int64_t number, const TokenSet& set) { states_[number] = set; }

 private:
  std::map<std::int64_t, TokenSet> states_;
};

using Segment = std::map<std::int64_t, TokenSet>;  // by number, the states of this step

// Runs one network, step by step.
class Oracle {
 public:
  Oracle(const Network& network, const Lengths& lengths) : network_(network), lengths_(lengths) {
    const auto places = static_cast<std::size_t>(network.layers()) + network.scales.size();
    histories_.resize(places);
    compressed_.resize(places);
    recent_.resize(places, std::deque<TokenSet>(static_cast<std::size_t>(lengths.memory)));
  }

  // Returns the sets of the output states of the step that begins at `begin`.
  Segment step(std::int64_t begin) {
    place_ = 0;
    Segment states;
    for (std::int64_t token = begin; token < begin + lengths_.segment; ++token) {
      states[token].set(static_cast<std::size_t>(token));
    }
    const bool recurrent = network_.architecture != Architecture::kMultiScale &&
                           network_.architecture != Architecture::kVanilla;
    const std::int64_t window = lengths_.segment + lengths_.memory;
    std::map<std::int64_t, TokenSet> sums;
    std::int64_t stride = 1;
    for (std::size_t scale = 0; scale < network_.scales.size(); ++scale) {
      for (std::int64_t layer = 0; layer < network_.scales[scale]; ++layer) {
        const auto length = static_cast<std::int64_t>(states.size());
        states = run_layer(states, recurrent ? window - length : 0, stride);
      }
      const History before = histories_[place_];
      remember(states, stride);
      ++place_;
      const std::int64_t first = states.begin()->first;
      const auto find = [&](std::int64_t number) {
        if (number >= first) return states.at(number);
        return recurrent ? before.at(number) : TokenSet();
      };
      for (std::int64_t token = begin; token < begin + lengths_.segment; ++token) {
        const std::int64_t complete = (token + 1) / stride;  // states up to the token ...
        sums[token] |= find(complete - 1);                   // ... the last of them counts
      }
      if (scale + 1 < network_.scales.size()) {
        const auto pooled = recurrent ? window / network_.rate
                                      : static_cast<std::int64_t>(states.size()) / network_.rate;
        const auto count = std::min(pooled, static_cast<std::int64_t>(states.size()));
        const std::int64_t end = (states.rbegin()->first + 1) / network_.rate;
        Segment coarse;
        for (std::int64_t number = end - count; number < end; ++number) {
          for (std::int64_t i = 0; i < network_.rate; ++i) {
            coarse[number] |= find(number * network_.rate + i);
          }
        }
        states = coarse;
        stride *= network_.rate;
      }
    }
    if (network_.scales.size() > 1 || network_.output_layers > 0) states = sums;
    for (std::int64_t layer = 0; layer < network_.output_layers; ++layer) {
      states = run_layer(states, lengths_.memory, 1);
    }
    return states;
  }

 private:
  Segment run_layer(const Segment& input, std::int64_t memory, std::int64_t stride) {
    const std::int64_t first = input.begin()->first;
    const std::deque<TokenSet>& compressed = compressed_[place_];
    std::vector<TokenSet> window(static_cast<std::size_t>(lengths_.compressed_memory) -
                                 compressed.size());
    window.insert(window.end(), compressed.begin(), compressed.end());
    for (std::int64_t number = first - memory; number < first; ++number) {
      window.push_back(histories_[place_].at(number));
    }
    const std::size_t before = window.size();
    for (const auto& [number, state] : input) window.push_back(state);
    Segment output;
    for (std::size_t i = before; i < window.size(); ++i) {
      output[first + static_cast<std::int64_t>(i - before)] = look_back(window, i, before);
    }
    remember(input, stride);
    forget_into_compressed(input);
    ++place_;
    return output;
  }

  // Returns all tokens that the query at `index` of the window sees.
  TokenSet look_back(const std::vector<TokenSet>& window, std::size_t index,
                     std::size_t before) const {
    const std::size_t span =
        network_.same_length ? before : static_cast<std::size_t>(network_.attention_window);
    std::vector<std::int64_t> dilations = network_.attention_dilation;
    dilations.resize(std::max<std::size_t>(1, dilations.size()), 1);
    TokenSet seen;
    for (const std::int64_t dilation : dilations) {
      for (std::size_t k = 0; span == 0 || k < span; ++k) {
        const std::size_t distance = k * static_cast<std::size_t>(dilation);
        if (distance > index) break;
        seen |= window[index - distance];
      }
    }
    return seen;
  }

  // Keeps the states that the segment evicts at the end of the step: as many as a step of tokens
  // gives, oldest first.
  void remember(const Segment& states, std::int64_t stride) {
    std::int64_t count = lengths_.segment / stride;
    for (const auto& [number, state] : states) {
      if (count-- > 0) histories_[place_].write(number, state);
    }
  }

  // Follows the two queues of the Compressive Transformer literally.
  void forget_into_compressed(const Segment& states) {
    if (network_.architecture != Architecture::kCompressive) return;
    std::deque<TokenSet>& recent = recent_[place_];
    std::deque<TokenSet>& compressed = compressed_[place_];
    for (const auto& [number, state] : states) recent.push_back(state);
    const std::int64_t count = lengths_.segment / network_.rate;
    for (std::int64_t k = 0; k < count; ++k) {
      TokenSet group;
      for (const std::int64_t index : sources(k, count)) {
        group |= recent[static_cast<std::size_t>(index)];
      }
      compressed.push_back(group);
    }
    recent.erase(recent.begin(), recent.begin() + lengths_.segment);
    while (static_cast<std::int64_t>(compressed.size()) > lengths_.compressed_memory) {
      compressed.pop_front();
    }
  }

  // Returns which of the states evicted in a step become number `k` of the `count` compressed ones.
  std::vector<std::int64_t> sources(std::int64_t k, std::int64_t count) const {
    std::vector<std::int64_t> indexes;
    for (std::int64_t i = 0; i < lengths_.segment; ++i) {
      const bool dilated = i % count == k;
      const bool neighbour = i / network_.rate == k;
      // Number k of `count` chosen states has k chosen ones before it and the rest after it.
      const bool choice = i >= k && lengths_.segment - 1 - i >= count - 1 - k;
      if (network_.pool == Pool::kDilatedConvolution ? dilated
          : network_.pool == Pool::kMostUsed         ? choice
                                                     : neighbour) {
        indexes.push_back(i);
      }
    }
    return indexes;
  }

  Network network_;
  Lengths lengths_;
  std::size_t place_ = 0;
  std::vector<History> histories_;
  std::vector<std::deque<TokenSet>> recent_, compressed_;
};

std::int64_t first_of(const TokenSet& set) {
  std::int64_t token = 0;
  while (token < kTokens && !set[static_cast<std::size_t>(token)]) ++token;
  return token;
}

// Returns the tokens of an output state's cone, in a stream in which the segment begins at `begin`.
TokenSet tokens_of(const Cone& cone, const Stage& tokens, std::int64_t begin) {
  TokenSet set;
  for (std::size_t k = 0; k < cone.front().size(); ++k) {
    for (std::size_t i = 0; i < cone.front()[k].size(); ++i) {
      if (cone.front()[k][i]) {
        set.set(static_cast<std::size_t>(
            begin +
            first_token(tokens, {static_cast<std::int64_t>(k), static_cast<std::int64_t>(i)})));
      }
    }
  }
  return set;
}

// The last two steps of a stream of kTokens tokens must agree with oldest_dependencies().
void compare_with_oracle(const Network& network, const Lengths& lengths) {
  const std::string name = to_text(network.architecture);
  CAPTURE(name);
  CAPTURE(to_text(network.pool));
  CAPTURE(network.scales.size());
  CAPTURE(network.rate);
  CAPTURE(network.output_layers);
  CAPTURE(network.same_length);
  CAPTURE(network.attention_window);
  CAPTURE(network.attention_dilation.size());
  CAPTURE(lengths.segment);
  CAPTURE(lengths.memory);
  CAPTURE(lengths.compressed_memory);
  const Geometry geometry = make_geometry(network, lengths);
  const std::vector<std::int64_t> oldest = oldest_dependencies(geometry);
  Oracle oracle(network, lengths);
  for (std::int64_t begin = 0; begin + lengths.segment <= kTokens; begin += lengths.segment) {
    const Segment states = oracle.step(begin);
    const bool last_steps = begin + 3 * lengths.segment > kTokens;
    bool causal = true, reached = true, exact = true, same_cone = true;
    for (const auto& [token, set] : states) {
      const std::int64_t found = first_of(set);
      const std::int64_t expected = begin + oldest[static_cast<std::size_t>(token - begin)];
      causal = causal && (set >> (static_cast<std::size_t>(token) + 1)).none();
      reached = reached && found >= expected;
      exact = exact && found == expected;
      if (last_steps) {
        same_cone = same_cone && set == tokens_of(cone_of(geometry, token - begin),
                                                  geometry.stages.front(), begin);
      }
    }
    CHECK(static_cast<std::int64_t>(states.size()) == lengths.segment);
    CHECK(causal);
    CHECK(reached);  // never further back, even while the memories fill
    if (last_steps) {
      CHECK(exact);
      CHECK(same_cone);
    }
  }
}

// The stream must be long enough for memories to fill and for the context itself.
bool fits(const Network& network, const Lengths& lengths) {
  Network unlimited = network;
  unlimited.same_length = false;
  unlimited.attention_window = 0;
  const ContextLength estimate = paper_context(unlimited, lengths);
  return estimate.maximum + (2 + network.layers()) * lengths.segment < kTokens / 2;
}

}  // namespace

TEST_CASE("oldest_dependencies equals sets carried through the steps") {
  compare_with_oracle(paper_ql(), {4, 12, 0});
  compare_with_oracle(quadratic({1, 1, 1}, 1), {4, 4, 0});
  compare_with_oracle(quadratic({2, 2}, 2), {16, 0, 0});
  compare_with_oracle(paper_ql(), {2, 30, 0});
  compare_with_oracle(xl(8), {2, 30, 0});
  compare_with_oracle(compressive(8), {4, 6, 6});
  for (const Pool pool : {Pool::kMax, Pool::kDilatedConvolution, Pool::kMostUsed}) {
    Network network = compressive(3, 3);
    network.pool = pool;
    for (std::int64_t compressed = 0; compressed <= 9; ++compressed) {
      compare_with_oracle(network, {12, 5, compressed});
    }
  }
  compare_with_oracle(multi_scale({1, 2, 1}, 1), {12, 0, 0});
  compare_with_oracle(vanilla(2), {7, 0, 0});
}

TEST_CASE("oldest_dependencies equals sets for random networks of every architecture") {
  std::mt19937 random(11);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  std::map<Architecture, int> compared;
  int limited = 0, dilated = 0;
  for (int i = 0; i < 800; ++i) {
    const std::int64_t rate = pick(2, 4);
    std::vector<std::int64_t> scales;
    for (std::int64_t scale = pick(1, 3); scale > 0; --scale) scales.push_back(pick(1, 2));
    const std::vector<Network> family{quadratic(scales, pick(0, 2), rate),
                                      quadratic(scales, pick(0, 2), rate),
                                      xl(pick(1, 4)),
                                      compressive(pick(1, 3), rate),
                                      multi_scale(scales, pick(0, 2), rate),
                                      vanilla(pick(1, 3))};
    Network network = family[static_cast<std::size_t>(pick(0, 5))];
    if (i % 4 == 1) {
      network.attention_window = pick(1, 12);
    } else if (i % 4 == 2) {
      network.attention_window = pick(1, 6);
      network.attention_dilation = {pick(1, 4), pick(1, 4)};
    } else if (i % 4 == 3) {
      network.same_length = keeps_memory(network.architecture);
    }
    if (network.architecture == Architecture::kCompressive) {
      const Pool pools[] = {Pool::kMax, Pool::kDilatedConvolution, Pool::kMostUsed};
      network.pool = pools[compared[Architecture::kCompressive] % 3];
    }
    // The lengths are made valid by the library's own advice; memories are shorter, equal and
    // longer than segments.
    const Lengths lengths =
        nearest_valid_lengths(network, {pick(1, 20), pick(0, 24), pick(0, 6)}).back();
    if (fits(network, lengths)) {
      compare_with_oracle(network, lengths);
      ++compared[network.architecture];
      limited += network.same_length || network.attention_window > 0 ? 1 : 0;
      dilated += network.attention_dilation.empty() ? 0 : 1;
    }
  }
  CHECK(compared[Architecture::kTransformerQl] > 50);
  CHECK(compared[Architecture::kTransformerXl] > 30);
  CHECK(compared[Architecture::kCompressive] > 30);
  CHECK(compared[Architecture::kMultiScale] > 30);
  CHECK(compared[Architecture::kVanilla] > 30);
  CHECK(limited > 200);
  CHECK(dilated > 100);
}
