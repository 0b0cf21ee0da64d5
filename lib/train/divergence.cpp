#include "train/divergence.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ql::train {
namespace {

constexpr std::int64_t kMeanSteps = 100;
constexpr std::size_t kMost = 10;
constexpr std::int64_t kWithin = 100;

std::string not_finite(double value) { return std::isnan(value) ? "not a number" : "infinite"; }

std::string figures(const Divergence& found) {
  if (!found.tensor.empty()) return "";
  // A NaN has no sign that means anything.
  const auto number = [](double value) { return std::isnan(value) ? std::fabs(value) : value; };
  std::string text = fmt::format(" (loss {:.4g}, gradient norm {:.3g}", number(found.loss),
                                 number(found.gradient_norm));
  const bool tells = std::any_of(found.layers.begin(), found.layers.end(),
                                 [](const GroupNorm& layer) { return std::isfinite(layer.norm); });
  const char* before = ": ";
  for (const GroupNorm& layer : found.layers) {
    if (!tells) break;  // one word for all of them is enough
    text += fmt::format("{}{} {:.3g}", before, layer.name, number(layer.norm));
    before = ", ";
  }
  return text + ")";
}

std::string advice(OnDivergence tried) {
  const std::string begin = "go on with --resume and a lower learning_rate, more warmup_steps";
  return tried == OnDivergence::kStop ? begin + ", a smaller clip, or --set divergence=rollback"
                                      : begin + ", or a smaller clip";
}

}  // namespace

std::string Divergence::reason() const {
  if (!tensor.empty()) return tensor + " holds NaN or infinite values";
  if (!std::isfinite(loss)) return "the loss is " + not_finite(loss);
  if (!std::isfinite(gradient_norm)) return "the gradient's norm is " + not_finite(gradient_norm);
  return loss > largest_loss ? fmt::format("the loss has jumped above {:.4g}", largest_loss) : "";
}

Diverged::Diverged(Divergence found, OnDivergence tried)
    : Error(fmt::format("step {}", found.step + 1), found.reason() + figures(found), advice(tried)),
      found_(std::move(found)) {}

void RunningLoss::add(double sum, std::int64_t count) {
  if (count < 1) return;
  steps = std::min(steps + count, kMeanSteps);
  const double weight = std::min(1.0, static_cast<double>(count) / static_cast<double>(steps));
  mean += weight * (sum / static_cast<double>(count) - mean);
}

double RunningLoss::largest(double jump) const {
  return jump > 0 && steps > 0 ? mean + jump : std::numeric_limits<double>::infinity();
}

void Divergences::add(std::int64_t step) {
  ++count;
  // Steps after this one stay. They happened before a rollback.
  recent.erase(std::remove_if(recent.begin(), recent.end(),
                              [step](std::int64_t other) { return other + kWithin <= step; }),
               recent.end());
  recent.push_back(step);
}

bool Divergences::too_many() const { return recent.size() > kMost; }

}  // namespace ql::train
