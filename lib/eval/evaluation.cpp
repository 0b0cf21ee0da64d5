#include "eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ql::eval {

void LossSums::add(double loss) {
  ++targets;
  nll += loss;
  squares += loss * loss;
}

void LossSums::add(const LossSums& other) {
  targets += other.targets;
  nll += other.nll;
  squares += other.squares;
}

void Evaluation::add(const Evaluation& other) {
  LossSums::add(other);
  known.add(other.known);
  batch = std::max(batch, other.batch);
  warm_up += other.warm_up;
  seconds += other.seconds;
}

double LossSums::mean() const { return nll / static_cast<double>(targets); }

double LossSums::perplexity() const { return std::exp(mean()); }

double LossSums::standard_error() const {
  if (targets < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(targets);
  const double variance = std::max(0.0, squares / count - mean() * mean());
  return std::sqrt(variance / (count - 1));
}

void ScoredTargets::skip(std::int64_t skipped) {
  position += skipped;
  ids += skipped;
  losses += skipped;
  count -= skipped;
  likeliest += skipped * top;
}

}  // namespace ql::eval
