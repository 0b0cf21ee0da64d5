#include "eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ql::eval {

double Evaluation::mean() const { return nll / static_cast<double>(targets); }

double Evaluation::perplexity() const { return std::exp(mean()); }

double Evaluation::standard_error() const {
  if (targets < 2) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto count = static_cast<double>(targets);
  const double variance = std::max(0.0, squares / count - mean() * mean());
  return std::sqrt(variance / (count - 1));
}

}  // namespace ql::eval
