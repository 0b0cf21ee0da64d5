// Describes and counts divergences, and converts the state of a training run to JSON and back.

#include "train/state.h"

#include <cmath>

namespace ql::train {

constexpr std::int64_t kMeanSteps = 100;
constexpr std::size_t kMost = 10;
constexpr std::int64_t kWithin = 100;

static std::string not_finite(double value) {
  return std::isnan(value) ? "not a number" : "infinite";
}

static std::string figures(const Divergence& found) {
  if (!found.in_step()) return "";
  // The sign of a NaN has no meaning.
  const auto number = [](double value) { return std::isnan(value) ? std::fabs(value) : value; };
  std::string text = fmt::format(" (loss {:.4g}", number(found.loss));
  if (found.gradient_norm) {
    text += fmt::format(", gradient norm {:.3g}", number(*found.gradient_norm));
  }
  const bool informative =
      std::any_of(found.layers.begin(), found.layers.end(),
                  [](const GroupNorm& layer) { return std::isfinite(layer.norm); });
  const char* before = ": ";
  for (const GroupNorm& layer : found.layers) {
    if (!informative) break;  // without a finite norm the list adds nothing
    text += fmt::format("{}{} {:.3g}", before, layer.name, number(layer.norm));
    before = ", ";
  }
  return text + ")";
}

static std::string advice(const Divergence& found, const DivergedRun& run) {
  std::string text = "start again with";
  if (!run.checkpoint.empty()) {
    text = fmt::format("go on with --resume, from {} of step {}, and", run.checkpoint,
                       with_thousands(run.checkpoint_step));
  }
  const bool stopped = run.tried == OnDivergence::kStop;
  text += fmt::format(" a lower learning_rate, more warmup_steps{} ", stopped ? "," : ", or");
  text += run.clip > 0 ? fmt::format("a clip below {}", run.clip) : "a clip such as 0.25";
  if (stopped) text += ", or, on the CPU, --set divergence=rollback";
  if (found.jumped() && run.loss_jump > 0) {
    text += fmt::format("; if the losses of this text differ that much, set loss_jump above {}",
                        run.loss_jump);
  }
  if (!run.older.empty()) {
    text += fmt::format("; if a resume diverges at once, rename {}: --resume then takes {}",
                        run.doubtful, run.older);
  }
  return text;
}

bool Divergence::jumped() const {
  return tensor.empty() && !validation && std::isfinite(loss) && loss > largest_loss &&
         (!gradient_norm || std::isfinite(*gradient_norm));
}

std::string Divergence::reason() const {
  if (!tensor.empty()) return tensor + " holds NaN or infinite values";
  if (validation) return "the validation loss is not finite";
  if (!std::isfinite(loss)) return "the loss is " + not_finite(loss);
  if (gradient_norm && !std::isfinite(*gradient_norm)) {
    return "the gradient's norm is " + not_finite(*gradient_norm);
  }
  return jumped() ? fmt::format("the loss has jumped above {:.4g}", largest_loss) : "";
}

Diverged::Diverged(Divergence found, const DivergedRun& run)
    : Error(fmt::format("step {}", found.step + 1), found.reason() + figures(found),
            advice(found, run)),
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
  // Divergences at later steps stay in the list: they happened before a rollback.
  recent.erase(std::remove_if(recent.begin(), recent.end(),
                              [step](std::int64_t other) { return other + kWithin <= step; }),
               recent.end());
  recent.push_back(step);
}

bool Divergences::too_many() const { return recent.size() > kMost; }

std::string DataIdentity::words() const {
  return more ? fmt::format("{} and {} more", name, more->size()) : name;
}

constexpr double kMostSteps = 0x1p53;  // the sum of two such numbers does not overflow

constexpr auto keys_of(const DataIdentity&) {
  return [](auto& data, const auto& row) {
    row("name", data.name, {}, kRequired);
    row("more", data.more);
    row("hash", data.hash, {}, kRequired);
    row("tokens", data.tokens, {0}, kRequired);
  };
}

constexpr auto keys_of(const Best&) {
  return [](auto& best, const auto& row) {
    row("step", best.step, {0}, kRequired);
    row("loss", best.loss, {}, kRequired);
  };
}

constexpr auto keys_of(const StepSums&) {
  return [](auto& sums, const auto& row) {
    row("steps", sums.steps, {0, kMostSteps}, kRequired);
    row("loss_sum", sums.loss, {}, kRequired);
    row("gradient_norm_sum", sums.gradient_norm, {}, kRequired);
  };
}

constexpr auto keys_of(const RunningLoss&) {
  return [](auto& loss, const auto& row) {
    row("mean", loss.mean, {}, kRequired);
    row("steps", loss.steps, {0, kMostSteps}, kRequired);
  };
}

constexpr auto keys_of(const Divergences&) {
  return [](auto& divergences, const auto& row) {
    row("count", divergences.count, {0, kMostSteps}, kRequired);
    row("recent", divergences.recent, {0, kMostSteps}, kRequired);
  };
}

constexpr auto keys_of(const TrainingState&) {
  return [](auto& state, const auto& row) {
    row("step", state.step, {0, kMostSteps}, kRequired);
    row("updates", state.updates, {0}, kRequired);
    row("cursor", state.cursor, {0, kMostSteps}, kRequired);
    row("elapsed", state.elapsed, {}, kRequired);
    row("epoch", state.epoch, {0}, kRequired);
    row("position", state.position, {0}, kRequired);
    row("validation_step", state.validation_step, {0}, kRequired);
    row("best", state.best);
    row("since_best", state.since_best, {0, kMostSteps}, kRequired);
    row("since_log", state.since_log, {}, kRequired);
    row("processes", state.processes, {1}, kRequired);
    row("running_loss", state.running_loss, {}, kRequired);
    row("divergences", state.divergences, {}, kRequired);
    row("data", state.data, {}, kRequired);
    row("validation", state.validation, {}, kRequired);
  };
}

Json state_to_json(const TrainingState& state) { return write_keys(state); }

TrainingState state_from_json(const JsonObject& json) {
  auto state = read_keys<TrainingState>(json);
  const Range steps(0, static_cast<double>(state.step));
  check_range(json.where(), "updates", state.updates, steps);
  check_range(json.where(), "validation_step", state.validation_step, steps);
  check_range(json.where(), "best: step", state.best.value_or(Best()).step, steps);
  check_range(json.where(), "since_log: steps", state.since_log.steps, steps);
  return state;
}

}  // namespace ql::train
