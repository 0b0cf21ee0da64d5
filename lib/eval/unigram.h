// Counts ids, and scores each token by its frequency in the training data.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "eval/data_set.h"
#include "eval/evaluate.h"

namespace ql::eval {

// Returns how often each of the ids 0 .. vocab_size-1 occurs. Throws Error for ids outside the
// vocabulary.
std::vector<std::int64_t> count_tokens(const TokenSource& source, std::int64_t vocab_size,
                                       const TargetProgress& progress = {});

// Scores each token by its frequency in the training data, whatever the preceding tokens are. Every
// language model has to beat this baseline.

// p(w) = (count(w) + 1) / (N + V) with N tokens and V ids. This is the maximum-likelihood estimate
// with one added to every count, so that tokens unseen in training have a probability.
class Unigram {
 public:
  // Counts every token of `source`. Throws Error for ids outside the vocabulary.
  Unigram(const TokenSource& source, std::int64_t vocab_size, const TargetProgress& progress = {});

  // Returns -ln p(id) in nats.
  double loss(std::int64_t id) const;

  // Scores the same targets as evaluate() of a network: all tokens except the first. It uses only
  // the options `unknown`, `sink`, `progress` and `first_target`.
  Evaluation evaluate(const TokenSource& source, const EvaluationOptions& options = {}) const;

 private:
  std::int64_t vocab_size_;
  double loss_of_others_;
  // Only of ids that occur: data may state a vocabulary that is far larger than the data.
  std::unordered_map<std::int64_t, double> losses_;
};

}  // namespace ql::eval
