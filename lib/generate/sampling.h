// Chooses the next token from the probabilities that a network gives to all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/token_info.h"

namespace ql::generate {

// The rules apply in this order. The defaults leave the network's probabilities as they are.
struct SamplingRules {
  // Raises the probability of a token that the sample has read to this power: CTRL's penalty
  // (Keskar et al., 2019), for networks that give logarithms of probabilities in the place of
  // scores of both signs.
  double repetition_penalty = 1;
  // Divides the logarithms of the probabilities. 0: always the likeliest token.
  double temperature = 1;
  std::int64_t top_k = 0;  // keeps the k likeliest tokens; 0: all
  // Keeps the fewest tokens, the likeliest first, that have this probability together (Holtzman et
  // al., 2020).
  double top_p = 1;
  // Keeps the tokens that have at least this part of the likeliest one's probability.
  double min_p = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplingRules& rules) : rules_(rules) {}

  // Returns the token that `uniform` in [0, 1) chooses, given the natural logarithms of the
  // probabilities of `count` tokens. `seen` says for every token whether the sample has read it; it
  // may be empty without a repetition penalty. Of tokens that are equally likely the one with the
  // lower id counts as the likelier.
  shard::TokenId choose(const float* log_probabilities, std::int64_t count,
                        const std::vector<bool>& seen, double uniform);

 private:
  bool filters() const;
  void keep_likeliest();

  SamplingRules rules_;
  std::vector<float> weights_;  // of all tokens, the largest 1
  std::vector<shard::TokenId> kept_;
};

// A number in [0, 1) for the token at `position` of a sample: a function of its arguments, so that
// a sample does not depend on others.
double uniform_number(std::uint64_t seed, std::uint64_t sample, std::uint64_t position);

}  // namespace ql::generate
