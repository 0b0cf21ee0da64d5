#include "base/log.h"
#include "base/number.h"
#include "train/training_run.h"

namespace ql::train {
namespace {

// JSON has no infinity and no NaN: they become null, and the reason says which it was.
Json record_of(const Divergence& found, const TrainingState& state, OnDivergence action,
               double elapsed) {
  Json record = {{"kind", "divergence"},
                 {"number", state.divergences.count},
                 {"step", found.step + 1},
                 {"cursor", state.cursor},
                 {"reason", found.reason()}};
  if (found.tensor.empty()) {
    record["loss"] = found.loss;
    record["gradient_norm"] = found.gradient_norm;
    record["layers"] = Json::object();
    for (const GroupNorm& layer : found.layers) {
      record["layers"][layer.name] = layer.norm;
    }
  }
  record["action"] = to_text(action);
  record["elapsed"] = elapsed;
  return record;
}

}  // namespace

void TrainingRun::run() {
  if (task_.config.divergence == OnDivergence::kRollback && newest_.empty()) {
    save(folder_.last());  // something to go back to
  }
  for (;;) {
    try {
      run_steps();
      return;
    } catch (const Diverged& error) {
      if (!recover(error.found())) {
        throw;
      }
      log_warning("step {}: {}; {}", with_thousands(error.found().step + 1), error.found().reason(),
                  task_.config.divergence == OnDivergence::kSkip
                      ? "the step is left out"
                      : "going on from step " + with_thousands(state_.step));
    }
  }
}

// False when the training has to end. Its record is in the log in either case.
bool TrainingRun::recover(const Divergence& found) {
  const bool in_step = found.tensor.empty();
  OnDivergence action = task_.config.divergence;
  state_.divergences.add(found.step);
  if (action != OnDivergence::kStop && state_.divergences.too_many()) {
    log_warning("{} divergences close together, {} in all: giving up",
                state_.divergences.recent.size(), state_.divergences.count);
    action = OnDivergence::kStop;
  }
  if (action == OnDivergence::kSkip && !in_step) {
    action = OnDivergence::kStop;  // no step to leave out: the weights are broken
  }
  const Json record = record_of(found, state_, action, watch_.total());
  // A broken weight is found when the step that broke it is finished.
  const std::int64_t behind = in_step ? state_.cursor + 1 : state_.cursor;
  if (action == OnDivergence::kRollback) {
    roll_back(behind);
  } else if (action == OnDivergence::kSkip) {
    state_.cursor = behind;
    streams_.set_cursor(state_.step, state_.cursor);
    unsaved_ = true;
  }
  line_.clear();
  append_to_log(record);
  return action != OnDivergence::kStop;
}

// To the newest checkpoint, but on with segment `cursor`.
void TrainingRun::roll_back(std::int64_t cursor) {
  const Divergences divergences = state_.divergences;
  restore(newest_, Rows::kSame);
  const std::int64_t before = streams_.epoch(state_.step);
  state_.divergences = divergences;
  state_.cursor = cursor;
  streams_.set_cursor(state_.step, cursor);
  if (streams_.epoch(state_.step) != before) {
    // The memory is of the end of one epoch, the segment is in another.
    nn::Memory memory = learner_->memory();
    for (const nn::NamedTensor& state : memory.states) {
      state.tensor.zero_();
    }
    learner_->set_memory(memory);
  }
  if (is_first()) {
    open_log();
  }
  timed_steps_ = 0;
  step_seconds_ = 0;
  unsaved_ = true;
}

}  // namespace ql::train
