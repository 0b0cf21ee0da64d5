// Chooses the next token from the logits of all tokens.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "shard/manifest.h"

namespace ql::generate {

// The rules apply in this order. The defaults leave the network's probabilities as they are.
struct SamplingRules {
  std::vector<shard::TokenId> without;  // never drawn
  // Divides the positive logits of recent tokens, and multiplies their negative logits. This is
  // CTRL's penalty (Keskar et al., 2019), in the form that other samplers use for logits of both
  // signs.
  double repetition_penalty = 1;
  std::int64_t repetition_window = 0;  // this many newest tokens count as recent; 0: all
  // Divides the logits. 0: the likeliest token is always chosen.
  double temperature = 1;
  std::int64_t top_k = 0;  // keeps the k likeliest tokens; 0: all
  // Keeps tokens, the likeliest first, until their probabilities add up to this share of the total
  // over the tokens that top_k keeps (Holtzman et al., 2020).
  double top_p = 1;
  // Keeps the tokens that have at least this fraction of the likeliest token's probability.
  double min_p = 0;
};

// Remembers the newest tokens of a sample, including those of its prompt.
class RecentTokens {
 public:
  // Ids must be below `vocabulary`. Remembers the newest `window` tokens; if `window` is 0, all
  // tokens.
  RecentTokens(std::int64_t vocabulary, std::int64_t window)
      : window_(static_cast<std::size_t>(window)), counts_(static_cast<std::size_t>(vocabulary)) {}

  void put(shard::TokenId id);
  bool has(shard::TokenId id) const { return counts_[id] > 0; }

 private:
  std::size_t window_;
  std::vector<std::uint32_t> counts_;  // of every id; without a window at most 1
  std::deque<shard::TokenId> order_;   // empty without a window
};

class Sampler {
 public:
  explicit Sampler(const SamplingRules& rules) : rules_(rules) {}

  // Returns the token that `uniform` in [0, 1) chooses, given the logits of `count` tokens. If
  // tokens are equally likely, the one with the lower id counts as the likelier.
  shard::TokenId choose(const float* logits, std::int64_t count, const RecentTokens& recent,
                        double uniform);

 private:
  void keep_likeliest();

  SamplingRules rules_;
  std::vector<float> weights_;  // of all tokens; the largest is 1, unless temperature is 0
  std::vector<shard::TokenId> kept_;
};

// Returns a value in [0, 1) for the token at `position` of a sample. The value depends on the
// arguments only, so a sample does not depend on other samples. The upper 32 bits of `sample` are
// the number of the prompt (generate/generator.cpp).
double uniform_number(std::uint64_t seed, std::uint64_t sample, std::uint64_t position);

}  // namespace ql::generate
