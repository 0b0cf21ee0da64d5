#include "train/state.h"

#include <fmt/format.h>

#include "base/keys.h"

namespace ql::train {

std::string DataIdentity::words() const {
  return more ? fmt::format("{} and {} more", name, more->size()) : name;
}

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

constexpr auto keys_of(const SinceLog&) {
  return [](auto& since, const auto& row) {
    row("steps", since.steps, {0}, kRequired);
    row("loss_sum", since.loss_sum, {}, kRequired);
    row("gradient_norm_sum", since.gradient_norm_sum, {}, kRequired);
  };
}

constexpr auto keys_of(const RunningLoss&) {
  return [](auto& loss, const auto& row) {
    row("mean", loss.mean, {}, kRequired);
    row("steps", loss.steps, {0}, kRequired);
  };
}

constexpr auto keys_of(const Divergences&) {
  return [](auto& divergences, const auto& row) {
    row("count", divergences.count, {0}, kRequired);
    row("recent", divergences.recent, {}, kRequired);
  };
}

// Files of earlier versions lack some keys.
constexpr auto keys_of(const TrainingState&) {
  return [](auto& state, const auto& row) {
    row("step", state.step, {0}, kRequired);
    row("updates", state.updates, {0});
    row("cursor", state.cursor, {0});
    row("elapsed", state.elapsed, {}, kRequired);
    row("epoch", state.epoch, {0}, kRequired);
    row("position", state.position, {0}, kRequired);
    row("validation_step", state.validation_step, {0}, kRequired);
    row("best", state.best);
    row("since_best", state.since_best, {0});
    row("since_log", state.since_log, {}, kRequired);
    row("processes", state.processes, {1});
    row("running_loss", state.running_loss);
    row("divergences", state.divergences);
    row("data", state.data, {}, kRequired);
    row("validation", state.validation, {}, kRequired);
  };
}

std::string state_text(const TrainingState& state) { return keys_text(state); }

TrainingState state_from_json(const JsonObject& json) {
  auto state = read_keys<TrainingState>(json);
  if (!json.has("updates")) state.updates = state.step;
  if (!json.has("cursor")) state.cursor = state.step;
  const Range steps(0, static_cast<double>(state.step));
  check_range(json.where(), "updates", state.updates, steps);
  check_range(json.where(), "validation_step", state.validation_step, steps);
  check_range(json.where(), "best: step", state.best.value_or(Best()).step, steps);
  check_range(json.where(), "since_log: steps", state.since_log.steps, steps);
  return state;
}

}  // namespace ql::train
