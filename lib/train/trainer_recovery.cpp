// Continues or ends a training run after a divergence: skips the step, or returns to a checkpoint.

#include "nn/memory_documents.h"
#include "train/training_run.h"

namespace ql::train {

// JSON has no infinity and no NaN. They become null, and "reason" names the one that was found.
static Json record_of(const Divergence& found, const TrainingState& state, OnDivergence action,
                      double elapsed) {
  Json record = {{"kind", "divergence"},
                 {"number", state.divergences.count},
                 {"step", found.step + 1},
                 {"cursor", state.cursor - (state.step - found.step)},
                 {"reason", found.reason()}};
  if (found.tensor.empty()) record["loss"] = found.loss;
  if (found.gradient_norm) {
    record["gradient_norm"] = *found.gradient_norm;
    record["layers"] = Json::object();
    for (const GroupNorm& layer : found.layers) record["layers"][layer.name] = layer.norm;
  }
  record["action"] = to_text(action);
  record["elapsed"] = elapsed;
  return record;
}

void TrainingRun::run() {
  // A rollback needs a checkpoint.
  if (task_.config.divergence == OnDivergence::kRollback && newest_.empty()) save(folder_.last());
  for (;;) {
    try {
      run_steps();
      return;
    } catch (const Diverged& error) {
      if (!recover(error.found())) {
        throw Diverged(error.found(), diverged_run(error.found()));
      }
      log_warning("step {}: {}; {}", with_thousands(error.found().step + 1), error.found().reason(),
                  task_.config.divergence == OnDivergence::kSkip
                      ? "the step is skipped"
                      : "continuing from the checkpoint after step " + with_thousands(state_.step));
    }
  }
}

// Sets the members of `run` that describe checkpoints.
static void find_checkpoints(DivergedRun& run, const std::filesystem::path& folder,
                             const Divergence& found) {
  const std::vector<std::filesystem::path> checkpoints = newest_checkpoints(folder);
  if (checkpoints.empty()) return;
  run.checkpoint = checkpoints.front().string();
  run.checkpoint_step = step_of(checkpoints.front()).value_or(0);
  // These weights, of this number of steps, gave the loss.
  const std::int64_t weights = found.in_step() ? found.step : found.step + 1;
  if (run.checkpoint_step < weights) return;
  for (const std::filesystem::path& checkpoint : checkpoints) {
    if (step_of(checkpoint).value_or(0) != run.checkpoint_step) {
      run.older = checkpoint.string();
      return;
    }
    run.doubtful += (run.doubtful.empty() ? "" : " and ") + checkpoint.string();
  }
}

DivergedRun TrainingRun::diverged_run(const Divergence& found) const {
  DivergedRun run{task_.config.divergence, task_.config.clip};
  run.loss_jump = task_.config.loss_jump;
  if (task_.is_first()) find_checkpoints(run, folder_.path(), found);
  // Other hosts may not see RUN.
  for (std::string* text : {&run.checkpoint, &run.doubtful, &run.older}) {
    *text = task_.group->from_first(*text);
  }
  run.checkpoint_step = task_.group->from_first(run.checkpoint_step);
  return run;
}

// Returns false if the run has to end. The divergence is in the log in either case.
bool TrainingRun::recover(const Divergence& found) {
  const bool in_step = found.in_step();
  OnDivergence action = task_.config.divergence;
  state_.divergences.add(found.step);
  if (action != OnDivergence::kStop && state_.divergences.too_many()) {
    log_warning("giving up after {} divergences close together, {} in all",
                state_.divergences.recent.size(), state_.divergences.count);
    action = OnDivergence::kStop;
  }
  // Only a step can be skipped. Broken weights stay.
  if (action == OnDivergence::kSkip && !in_step) action = OnDivergence::kStop;
  const Json record = record_of(found, state_, action, training_time_.seconds());
  // A broken weight is found after the step that broke it, so state_.cursor has already advanced.
  const std::int64_t next_cursor = in_step ? state_.cursor + 1 : state_.cursor;
  if (action == OnDivergence::kRollback) {
    roll_back(next_cursor);
  } else if (action == OnDivergence::kSkip) {
    leave_out_until(next_cursor);
  }
  line_.clear();
  append_to_log(record);
  return action != OnDivergence::kStop;
}

// Returns to the newest checkpoint, but continues with segment `cursor`.
void TrainingRun::roll_back(std::int64_t cursor) {
  folder_.require_in_place();
  const Divergences divergences = state_.divergences;
  restore(newest_, Rows::kSame);
  state_.divergences = divergences;
  leave_out_until(cursor);
  if (task_.is_first()) open_log();
  timed_steps_ = 0;
  step_seconds_ = 0;
}

// Continues with segment `cursor`, although the memory ends where segment state_.cursor begins.
// Sets states of the memory to zeros if they belong to another epoch than segment `cursor` or, with
// reset_memory_at_documents, to another document. Later steps cannot do this: to find states of
// other documents, they use the number of earlier tokens in the current document, which includes
// the skipped tokens. Because the states are already zeros, checkpoints need not record the skip.
void TrainingRun::leave_out_until(std::int64_t cursor) {
  const std::int64_t left_out = (cursor - state_.cursor) * streams_.segment();
  const std::int64_t epoch = streams_.epoch(state_.step);
  // At the beginning of an epoch the memory belongs to the previous one.
  const bool epoch_begins = streams_.starts_epoch(state_.step);
  state_.cursor = cursor;
  streams_.set_cursor(state_.step, cursor);
  unsaved_ = true;
  nn::StepOptions step;
  step.document_offsets.assign(static_cast<std::size_t>(streams_.batch()), 0);
  if (!epoch_begins && streams_.epoch(state_.step) == epoch) {
    if (!task_.network.reset_memory_at_documents) return;
    step.document_offsets = streams_.document_offsets(state_.step, {0, streams_.batch()});
    for (std::int64_t& offset : step.document_offsets) {
      offset = std::max<std::int64_t>(0, offset - left_out);
    }
  }
  nn::Memory memory = trained_.memory();
  nn::forget_other_documents(memory, net::make_geometry(task_.network, task_.network.lengths),
                             step);
  trained_.set_memory(memory);
}

}  // namespace ql::train
