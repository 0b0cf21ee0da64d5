// Compares the draws of sampling rules with distributions written down by hand, by a chi-squared
// test of 100,000 draws for each.
#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "unit/torch_doctest.h"

namespace ql::generate {
namespace {

const std::vector<double> kProbabilities = {0.02, 0.30,  0.05, 0.11, 0.11, 0.001,
                                            0.18, 0.009, 0.14, 0.03, 0.04, 0.01};

std::vector<float> logarithms(const std::vector<double>& probabilities) {
  std::vector<float> logs;
  for (const double p : probabilities) logs.push_back(static_cast<float>(std::log(p)));
  return logs;
}

std::vector<double> normalized(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::vector<double> to_the_power(std::vector<double> weights, double power) {
  for (double& weight : weights) weight = std::pow(weight, power);
  return normalized(weights);
}

// Draws 100,000 times and returns chi-squared, or a huge number if a token with probability 0 came.
// The logits are the logarithms of the probabilities plus `shift`, and `read` was read before.
double chi_squared(const SamplingRules& rules, const std::vector<double>& expected,
                   const std::vector<shard::TokenId>& read = {}, double shift = 0) {
  constexpr int kDraws = 100'000;
  std::vector<float> logits = logarithms(kProbabilities);
  for (float& logit : logits) logit += static_cast<float>(shift);
  const auto count = static_cast<std::int64_t>(logits.size());
  RecentTokens recent(count, rules.repetition_window);
  for (const shard::TokenId id : read) recent.put(id);
  Sampler sampler(rules);
  std::vector<int> counts(logits.size(), 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    ++counts[sampler.choose(logits.data(), count, recent,
                            uniform_number(7, 3, static_cast<std::uint64_t>(draw)))];
  }
  double sum = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    const double mean = expected[id] * kDraws;
    if (mean == 0) {
      if (counts[id] > 0) return 1e9;
    } else {
      sum += (counts[id] - mean) * (counts[id] - mean) / mean;
    }
  }
  return sum;
}

// With 11 degrees of freedom chance exceeds this once in a million; fewer degrees exceed it less.
constexpr double kLimit = 50;

SamplingRules rules_with(double SamplingRules::*member, double value) {
  SamplingRules rules;
  rules.*member = value;
  return rules;
}

}  // namespace

TEST_CASE("Sampler: each rule draws from its distribution") {
  const std::vector<double> plain = normalized(kProbabilities);
  CHECK(chi_squared({}, plain) < kLimit);
  // The test would notice a distribution that is a little off.
  CHECK(chi_squared({}, to_the_power(plain, 1.05)) > kLimit);

  CHECK(chi_squared(rules_with(&SamplingRules::temperature, 0.6), to_the_power(plain, 1 / 0.6)) <
        kLimit);
  CHECK(chi_squared(rules_with(&SamplingRules::temperature, 2), to_the_power(plain, 0.5)) < kLimit);

  // Tokens 3 and 4 are equally likely, and the first one is kept.
  SamplingRules rules;
  rules.top_k = 4;
  CHECK(chi_squared(rules, normalized({0, .30, 0, .11, 0, 0, .18, 0, .14, 0, 0, 0})) < kLimit);
  rules.top_k = 100;
  CHECK(chi_squared(rules, plain) < kLimit);

  // 0.30 + 0.18 + 0.14 are less than 0.7; adding 0.11 exceeds it.
  CHECK(chi_squared(rules_with(&SamplingRules::top_p, 0.7),
                    normalized({0, .30, 0, .11, 0, 0, .18, 0, .14, 0, 0, 0})) < kLimit);
  CHECK(chi_squared(rules_with(&SamplingRules::top_p, 0), {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) <
        kLimit);

  CHECK(chi_squared(rules_with(&SamplingRules::min_p, 0.3),
                    normalized({0, .30, 0, .11, .11, 0, .18, 0, .14, 0, 0, 0})) < kLimit);

  rules = {};
  rules.without = {1, 5};
  CHECK(chi_squared(rules, normalized({.02, 0, .05, .11, .11, 0, .18, .009, .14, .03, .04, .01})) <
        kLimit);
}

TEST_CASE("RecentTokens: a repetition penalty acts on the logits of recent tokens") {
  struct Case {
    double penalty;
    std::int64_t window;
    std::vector<shard::TokenId> read;
    std::vector<std::size_t> recent;
  };
  const Case cases[] = {
      {1.5, 0, {1, 8, 0}, {0, 1, 8}},     {1.2, 0, {1, 1, 1, 1}, {1}},
      {0.7, 0, {8, 2}, {2, 8}},           {1.5, 2, {1, 8, 0}, {0, 8}},
      {1.5, 1, {1, 8, 1}, {1}},           {1.5, 3, {1, 1, 8}, {1, 8}},
      {1.5, 2, {1, 1, 8, 8, 8}, {8}},     {1.5, 9, {1, 8, 0}, {0, 1, 8}},
      {2, 2, {1, 8, 1, 8, 6, 8}, {6, 8}},
  };
  // Some logits are positive, or none is, or all are.
  for (const double shift : {2.5, 0.0, 8.0}) {
    for (const Case& one : cases) {
      CAPTURE(shift);
      CAPTURE(one.penalty);
      CAPTURE(one.window);
      SamplingRules rules;
      rules.repetition_penalty = one.penalty;
      rules.repetition_window = one.window;
      std::vector<double> expected;
      for (std::size_t id = 0; id < kProbabilities.size(); ++id) {
        double logit = std::log(kProbabilities[id]) + shift;
        if (std::count(one.recent.begin(), one.recent.end(), id) > 0) {
          logit = logit > 0 ? logit / one.penalty : logit * one.penalty;
        }
        expected.push_back(std::exp(logit));
      }
      CHECK(chi_squared(rules, normalized(expected), one.read, shift) < kLimit);
    }
  }
}

TEST_CASE("Sampler: rules apply in the order in which they are documented") {
  // Top-p counts the part of the probability that temperature and top-k have left.
  SamplingRules rules;
  rules.temperature = 0.5;
  rules.top_k = 3;
  rules.top_p = 0.85;
  // Squared and normalized: .09 and .0324 of .142 are 0.86.
  CHECK(chi_squared(rules, normalized({0, .09, 0, 0, 0, 0, .0324, 0, 0, 0, 0, 0})) < kLimit);
  // Min-p is applied last, and compares with the likeliest token's probability at that point.
  rules.top_p = 1;
  rules.min_p = 0.3;
  CHECK(chi_squared(rules, normalized({0, .09, 0, 0, 0, 0, .0324, 0, 0, 0, 0, 0})) < kLimit);
  // Excluded tokens do not count in the other rules.
  rules = {};
  rules.without = {1};
  rules.top_k = 2;
  CHECK(chi_squared(rules, normalized({0, 0, 0, 0, 0, 0, .18, 0, .14, 0, 0, 0})) < kLimit);
  rules.top_k = 0;
  rules.min_p = 0.7;
  CHECK(chi_squared(rules, normalized({0, 0, 0, 0, 0, 0, .18, 0, .14, 0, 0, 0})) < kLimit);
  // The penalty is for the network's logits, before the temperature: .30 e^2 has the logit 0.796.
  rules = {};
  rules.repetition_penalty = 2;
  rules.temperature = 0.5;
  std::vector<double> squares = to_the_power(kProbabilities, 2);
  double sum = 0;
  for (const double p : kProbabilities) sum += p * p;
  squares[1] = std::exp((std::log(.30) + 2) / 2 / 0.5 - 2 / 0.5) / sum;
  CHECK(chi_squared(rules, normalized(squares), {1}, 2) < kLimit);
}

TEST_CASE("Sampler: temperature 0 takes the likeliest token, the first of equals") {
  const std::vector<float> logs = logarithms({0.1, 0.4, 0.4, 0.1});
  Sampler sampler(rules_with(&SamplingRules::temperature, 0));
  RecentTokens recent(4, 0);
  recent.put(1);
  CHECK(sampler.choose(logs.data(), 4, recent, 0.99) == 1);
  SamplingRules penalty = rules_with(&SamplingRules::temperature, 0);
  penalty.repetition_penalty = 1.1;
  CHECK(Sampler(penalty).choose(logs.data(), 4, recent, 0.99) == 2);
  penalty.without = {2};
  CHECK(Sampler(penalty).choose(logs.data(), 4, recent, 0.99) == 1);
}

TEST_CASE("Sampler: a temperature near 0 chooses among the likeliest tokens") {
  const std::vector<float> logs = logarithms({0.1, 0.4, 0.4, 0.1});
  SamplingRules rules = rules_with(&SamplingRules::temperature, 1e-300);
  for (const std::int64_t top : {0, 3}) {
    rules.top_k = top;
    CHECK(Sampler(rules).choose(logs.data(), 4, RecentTokens(4, 0), 0.4) == 1);
    CHECK(Sampler(rules).choose(logs.data(), 4, RecentTokens(4, 0), 0.6) == 2);
  }
}

TEST_CASE("Sampler: a vocabulary of one token, tokens without probability, the interval's ends") {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> logs = {none, 0, none};
  for (const double uniform : {0.0, 0.5, 1 - 0x1p-53}) {
    CHECK(Sampler({}).choose(logs.data(), 3, RecentTokens(3, 0), uniform) == 1);
    CHECK(Sampler({}).choose(logs.data() + 1, 1, RecentTokens(1, 0), uniform) == 0);
  }
}

TEST_CASE("Sampler: top-p of many tokens equals that of a complete sort") {
  std::vector<double> weights;
  for (int id = 0; id < 5000; ++id) weights.push_back(1 + (id * 7919) % 5000);
  weights = normalized(weights);
  const std::vector<float> logs = logarithms(weights);
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return logs[a] > logs[b]; });
  double together = 0;
  std::set<shard::TokenId> kept;
  for (const std::size_t id : order) {
    if (together >= 0.5) break;
    together += weights[id];
    kept.insert(static_cast<shard::TokenId>(id));
  }
  Sampler sampler(rules_with(&SamplingRules::top_p, 0.5));
  // Uniform values that are close enough together reach every kept token.
  std::set<shard::TokenId> met;
  for (int i = 0; i < 20'000; ++i) {
    met.insert(sampler.choose(logs.data(), 5000, RecentTokens(5000, 0), i / 20'000.0));
  }
  CHECK(met == kept);
}

TEST_CASE("uniform_number: depends on seed, sample and position, and fills the interval") {
  CHECK(uniform_number(1, 2, 3) == uniform_number(1, 2, 3));
  std::set<double> all;
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t sample = 0; sample < 10; ++sample) {
      for (std::uint64_t position = 0; position < 100; ++position) {
        const double number = uniform_number(seed, sample << 30, position);
        CHECK((number >= 0 && number < 1));
        all.insert(number);
        sum += number;
      }
    }
  }
  CHECK(all.size() == 10'000);
  CHECK(sum / 10'000 == doctest::Approx(0.5).epsilon(0.02));
}

}  // namespace ql::generate
