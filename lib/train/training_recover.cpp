#include <algorithm>

#include "base/log.h"
#include "base/number.h"
#include "net/geometry.h"
#include "nn/document_reset_internal.h"
#include "train/training_run.h"

namespace ql::train {
namespace {

// JSON has no infinity and no NaN. They become null, and the reason says which it was.
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
    for (const GroupNorm& layer : found.layers) record["layers"][layer.name] = layer.norm;
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
      if (!recover(error.found())) throw Diverged(error.found(), task_.config.divergence);
      log_warning("step {}: {}; {}", with_thousands(error.found().step + 1), error.found().reason(),
                  task_.config.divergence == OnDivergence::kSkip
                      ? "the step is left out"
                      : "going on from step " + with_thousands(state_.step));
    }
  }
}

// Returns false when the training has to end. The divergence is in the log in either case.
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
    leave_out_until(behind);
  }
  line_.clear();
  append_to_log(record);
  return action != OnDivergence::kStop;
}

// Goes back to the newest checkpoint, but on with segment `cursor`.
void TrainingRun::roll_back(std::int64_t cursor) {
  const Divergences divergences = state_.divergences;
  restore(newest_, Rows::kSame);
  state_.divergences = divergences;
  leave_out_until(cursor);
  if (is_first()) open_log();
  timed_steps_ = 0;
  step_seconds_ = 0;
}

// Goes on with segment `cursor`, though the memory ends where segment state_.cursor begins. States
// that belong to another epoch or document there have to go at once: later steps see the ages of
// documents in the data, which also count the segments that were left out.
void TrainingRun::leave_out_until(std::int64_t cursor) {
  const std::int64_t left_out = (cursor - state_.cursor) * streams_.segment();
  const std::int64_t epoch = streams_.epoch(state_.step);
  const bool epoch_begins = streams_.starts_epoch(state_.step);  // the memory is of the one before
  state_.cursor = cursor;
  streams_.set_cursor(state_.step, cursor);
  unsaved_ = true;
  nn::StepOptions step;
  step.ages.assign(static_cast<std::size_t>(streams_.batch()), 0);
  if (!epoch_begins && streams_.epoch(state_.step) == epoch) {
    if (!task_.network.reset_memory_at_documents) return;
    step.ages = streams_.document_ages(state_.step, {0, streams_.batch()});
    for (std::int64_t& age : step.ages) age = std::max<std::int64_t>(0, age - left_out);
  }
  nn::Memory memory = trained_->memory();
  nn::forget_other_documents(memory, net::make_geometry(task_.network, task_.network.lengths),
                             step);
  trained_->set_memory(memory);
}

}  // namespace ql::train
