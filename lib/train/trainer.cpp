// Runs the loop of a training run: steps, validations and checkpoints, until it ends or diverges.

#include "train/training_run.h"

#include "base/process.h"
#include "base/resources.h"
#include "weights/weights.h"

namespace ql::train {

double TrainingRun::progress() const {
  return training_progress(task_.config, state_.step,
                           task_.group->is_single() ? training_time_.seconds() : elapsed_);
}

// Decisions that depend on clocks and signals have to be the same in all processes.
void TrainingRun::agree() {
  elapsed_ = training_time_.seconds();
  stop_signal_ = task_.group->agree_on_stop(stop_signal(), &elapsed_);
}

// A validation that a signal interrupted is still due after a resume.
bool TrainingRun::validation_due(bool finished) const {
  const bool scheduled = state_.step % task_.config.eval_interval == 0 || finished;
  return scheduled && state_.step > 0 && state_.validation_step != state_.step;
}

// Returns false if RUN/best is missing, or of an earlier attempt that was better.
static bool is_best(const std::filesystem::path& folder, const Best& best) {
  try {
    const std::optional<Best> found = read_state(folder).best;
    return found && found->step == best.step && found->loss == best.loss;
  } catch (const Error&) {
    return false;
  }
}

void TrainingRun::report_end(bool finished, bool patient) const {
  log_info("peak memory: {}", human_bytes(peak_resident_bytes()));
  const std::string step = with_thousands(state_.step), last = folder_.last().string();
  if (finished && run_steps_ > 0 && static_cast<double>(state_.step) < task_.config.warmup_steps &&
      highest_rate_in_warm_up(task_.config) == 0) {
    log_warning(
        "the budget ended during the warm-up (warmup_steps is {}), when the learning rate was "
        "{:.2g}, not yet {:.2g}: lower warmup_steps, or make it a fraction of the training, such "
        "as 0.1",
        task_.config.warmup_steps, learning_rate_, task_.config.learning_rate);
  }
  if (finished) {
    log_info("completed after step {}: {}", step, last);
  } else if (!patient) {
    log_info("ended after step {}, because {} in a row did not improve the best loss: {}", step,
             counted(task_.config.patience, "validation"), last);
  } else {
    log_info("stopped after step {} of {}: {}", step, with_thousands(task_.config.steps), last);
  }
  if (state_.best) {
    const bool kept = is_best(folder_.best(), *state_.best);
    log_info("best after step {}, perplexity {}{}{}", with_thousands(state_.best->step),
             human_perplexity(std::exp(state_.best->loss)), bits_text(state_.best->loss, unit_),
             kept ? ": " + folder_.best().string() : "");
  }
}

std::string TrainingRun::place_of_stop() const {
  if (newest_.empty()) return "before the first step";
  return fmt::format("after step {} of {}: {}", with_thousands(state_.step),
                     with_thousands(task_.config.steps), folder_.last().string());
}

bool TrainingRun::checkpoint_due() const {
  const TrainingConfig& config = task_.config;
  return state_.step % config.checkpoint_interval == 0 ||
         (config.checkpoint_minutes > 0 && elapsed_ - last_at_ >= 60 * config.checkpoint_minutes);
}

// Returns true if the schedule or its budget has ended. All steps are then in the log.
bool TrainingRun::is_finished() {
  // Even if the budget is spent at once, the run takes one step, because it has to write a
  // checkpoint.
  if (state_.step == 0 || progress() < 1) return false;
  finish_steps();
  if (state_.since_log.steps > 0) log_steps();
  return true;
}

void TrainingRun::run_steps() {
  for (;;) {
    agree();
    bool finished = is_finished();
    if (stop_signal_ == 0 && validation_due(finished)) {
      try {
        validate();
      } catch (const Interrupted&) {
        log_debug("a signal interrupted the validation");
      }
      agree();
      // The budget may have ended during the validation. A further step would then have the rate of
      // the schedule's end, and a further validation would follow it.
      finished = is_finished();
    }
    const std::int64_t patience = task_.config.patience;
    const bool patient = patience == 0 || state_.since_best < patience;
    const bool pause = finished || !patient || (task_.stop_at > 0 && state_.step >= task_.stop_at);
    if (checkpoint_due() || pause || stop_signal_ != 0) save_unsaved();
    if (stop_signal_ != 0) throw Interrupted(stop_signal_, place_of_stop());
    if (pause) {
      line_.clear();
      report_end(finished, patient);
      return;
    }
    train_step();
    const bool log_due = state_.step % task_.config.log_interval == 0;
    // On GPUs, the limit of the loss follows the losses that finish_steps() has read. So all
    // processes of a group must call it after the same steps. The progress line, which only one
    // process draws, may call it only when log_steps() then calls it in all processes.
    if (log_due || task_.group->is_single() || task_.compute.device.is_cpu()) {
      line_.show(progress(), [this] {
        finish_steps();
        return figures_words(figures(), task_.config.steps);
      });
    }
    if (log_due) log_steps();
  }
}

// Data that has become unreadable must not cost the steps since the last checkpoint. A batch is
// read before its step changes anything, so the state can still be saved.
void TrainingRun::train_step() {
  const Stopwatch watch;
  learning_rate_ = learning_rate(task_.config, state_.step, progress());
  trained_.set_largest_loss(state_.running_loss.largest(task_.config.loss_jump));
  try {
    add(trained_.step(streams_, state_.step, learning_rate_));
  } catch (const SystemError&) {
    save_before_failing();
    throw;
  } catch (const FormatError&) {
    save_before_failing();
    throw;
  }
  unsaved_ = true;
  ++state_.step;
  ++state_.cursor;
  ++timed_steps_;
  ++run_steps_;
  step_seconds_ += watch.seconds();
}

void TrainingRun::add(const StepSums& sums) {
  state_.since_log.add(sums);
  state_.running_loss.add(sums.loss, sums.steps);
}

// Call this before reading the network, and before reading figures that have to cover all steps so
// far.
void TrainingRun::finish_steps() {
  const Stopwatch watch;
  add(trained_.finish());
  step_seconds_ += watch.seconds();
}

Figures TrainingRun::figures() const {
  Figures figures;
  figures.step = state_.step;
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, state_.since_log.steps));
  figures.loss = state_.since_log.loss / steps;
  figures.unit = unit_;
  figures.gradient_norm = state_.since_log.gradient_norm / steps;
  figures.learning_rate = learning_rate_;
  const std::int64_t tokens = timed_steps_ * streams_.batch() * streams_.segment();
  figures.tokens_per_second = static_cast<double>(tokens) / std::max(step_seconds_, 1e-9);
  if (run_steps_ == 0) return figures;
  const double step_seconds =
      (watch_.seconds() - validation_seconds_) / static_cast<double>(run_steps_);
  // Before the first validation this is an estimate: scoring a token takes about a third of the
  // time of training on it.
  const double validation_seconds =
      validations_ > 0 ? validation_seconds_ / static_cast<double>(validations_)
                       : step_seconds / 3 * static_cast<double>(state_.validation.tokens) /
                             static_cast<double>(streams_.batch() * streams_.segment());
  figures.seconds_left = seconds_left(task_.config, state_.step, task_.stop_at,
                                      training_time_.seconds(), step_seconds, validation_seconds);
  return figures;
}

void TrainingRun::log_steps() {
  finish_steps();
  const Figures now = figures();
  // A resume that ends at once has losses of earlier steps, but took no step itself.
  const auto of_a_step = [this](double figure) { return timed_steps_ > 0 ? Json(figure) : Json(); };
  log_debug("{}", fmt::join(figures_words(now, task_.config.steps), ", "));
  Json record = {{"kind", "train"},
                 {"step", now.step},
                 {"epoch", streams_.epoch(now.step - 1)},
                 {"loss", now.loss},
                 {"perplexity", std::exp(now.loss)},
                 {"learning_rate", of_a_step(now.learning_rate)},
                 {"gradient_norm", now.gradient_norm},
                 {"tokens_per_second", of_a_step(now.tokens_per_second)},
                 {"batch", streams_.batch()},
                 {"elapsed", training_time_.seconds()}};
  add_bits(record, now.loss, unit_);
  append_to_log(record);
  state_.since_log = {};
  unsaved_ = true;
  timed_steps_ = 0;
  step_seconds_ = 0;
}

void TrainingRun::append_to_log(const Json& record) {
  if (log_) log_->append(record);
}

eval::Evaluation TrainingRun::evaluate(const net::Lengths& lengths) {
  eval::EvaluationOptions options;
  options.lengths = lengths;
  options.group = task_.group;
  options.progress = [&](std::int64_t targets) {
    // Several processes have to reach the end of the validation together.
    if (task_.group->is_single()) check_for_stop();
    line_.show(progress(), [&] {
      return Progress::Words{fmt::format("step {}", with_thousands(state_.step)), "validation",
                             fmt::format("{} targets", with_thousands(targets))};
    });
  };
  try {
    const nn::ModelPrecision precision(trained_.model(), task_.config.precision);
    return eval::evaluate(trained_.model(), eval::source_of(validation_data_), options);
  } catch (const Interrupted&) {
    throw;
  } catch (const eval::NotFinite&) {
    throw;
  } catch (const std::exception&) {
    // Damaged validation data must not cost the steps since the last checkpoint.
    save_before_failing();
    throw;
  }
}

void TrainingRun::validate() {
  finish_steps();
  const net::Lengths lengths = task_.config.evaluation_lengths(task_.network.lengths);
  eval::Evaluation result;
  try {
    result = evaluate(lengths);
  } catch (const eval::NotFinite&) {
    Divergence found;
    found.step = state_.step - 1;
    found.loss = std::nan("");
    found.validation = true;
    throw Diverged(found);
  }
  const double loss = result.mean();
  // The loss of a text that is unlike the training data may be far above theirs, most of all if the
  // network has memorised them. Destroyed weights fail on the training data, too.
  if (loss <= state_.running_loss.largest(task_.config.loss_jump)) sound_step_ = state_.step;
  require_sound();
  const bool best = !state_.best || loss < state_.best->loss;
  // A signal may interrupt the reading of the other checkpoint. In a single process nothing has
  // changed yet, so the validation is then still due.
  const bool other_stays = best && task_.is_first() && has_better(loss);
  unsaved_ = true;
  state_.validation_step = state_.step;
  state_.since_best = best ? 0 : state_.since_best + 1;
  validation_seconds_ += result.seconds;
  ++validations_;
  log_info("step {}: validation loss {:.4f}, perplexity {}{}{}", with_thousands(state_.step), loss,
           human_perplexity(result.perplexity()), bits_text(loss, unit_),
           best ? ", the best so far" : "");
  Json record = {{"kind", "validation"},
                 {"step", state_.step},
                 {"loss", loss},
                 {"perplexity", result.perplexity()},
                 {"targets", result.targets},
                 {"segment", lengths.segment},
                 {"memory", lengths.memory},
                 {"compressed_memory", lengths.compressed_memory},
                 {"best", best},
                 {"seconds", result.seconds},
                 {"elapsed", training_time_.seconds()}};
  add_bits(record, loss, unit_);
  append_to_log(record);
  if (!best) return;
  state_.best = Best{state_.step, loss};
  // The first process may take minutes to read the other checkpoint.
  const machine::ProcessGroup::LongWait wait(*task_.group);
  if (task_.group->from_first(std::int64_t{other_stays}) != 0) {
    save_unsaved();  // a rollback then returns to RUN/last of this step
  } else {
    save(folder_.best());
  }
}

// An earlier attempt of this run may have trained further before it was killed, and may have left a
// better RUN/best. The attempt's log is gone, and the settings may have changed, so its RUN/best
// does not count as the best of this run. But this RUN/best must not be lost.
bool TrainingRun::has_better(double loss) const {
  const std::filesystem::path folder = folder_.best();
  try {
    const std::optional<Best> other = read_state(folder).best;
    if (!other || other->loss >= loss || !damage(folder).empty()) return false;
    log_info("{} of step {} is kept, because its validation loss {:.4f} is lower than {:.4f}",
             folder.string(), with_thousands(other->step), other->loss, loss);
    return true;
  } catch (const Error& error) {
    if (means_damage(error)) return false;
    log_warning("{} is not replaced, because it cannot be read: {}", folder.string(), error.what());
    return true;
  }
}

// Throws Diverged if the next step would diverge. A step that destroys the weights has itself a
// good loss, because the loss is computed before the weights change.
void TrainingRun::require_sound() {
  if (sound_step_ == state_.step) return;
  Divergence found;
  found.step = state_.step;
  found.largest_loss = state_.running_loss.largest(task_.config.loss_jump);
  try {
    found.loss = trained_.loss_of(streams_, state_.step);
  } catch (const SystemError&) {
    if (!task_.group->is_single()) throw;
    return;  // training data that is unreadable must not cost the steps since the last checkpoint
  } catch (const FormatError&) {
    if (!task_.group->is_single()) throw;
    return;
  }
  // A tensor that is not finite explains the loss.
  if (!std::isfinite(found.loss)) finite_memory(trained_, state_.step);
  if (!found.reason().empty()) throw Diverged(found);
  sound_step_ = state_.step;
}

void TrainingRun::save(const std::filesystem::path& folder) {
  const machine::ProcessGroup::LongWait wait(*task_.group);
  finish_steps();
  require_sound();
  state_.elapsed = training_time_.seconds();
  state_.processes = task_.group->size();
  state_.epoch = streams_.epoch(state_.step);
  state_.position = streams_.position(state_.step);
  require_same_weights();
  const bool last = folder == folder_.last();
  if (task_.is_first()) {
    log_->sync();
    write_checkpoint(folder, description_, trained_, state_,
                     [this] { folder_.require_in_place(); });
    // Without hard links this copies the checkpoint, which may take minutes.
    if (last) {
      retain(folder_.path(), state_.step, {task_.config.keep_last, task_.config.keep_every},
             kept_step_);
    }
  } else {
    // finite_memory() gathers the memory's rows from all processes, so each of them has to call it.
    finite_memory(trained_, state_.step);
  }
  // No process relies on the checkpoint, or exits, before it is complete.
  task_.group->from_first(std::int64_t{0});
  newest_ = folder;
  saved_settings_ = settings_of(description_);
  if (last) {
    last_at_ = elapsed_;
    kept_step_ = state_.step;
  }
  log_debug("step {}: wrote {}", state_.step, folder.string());
}

void TrainingRun::require_same_weights() {
  if (task_.group->is_single()) return;
  task_.group->require_same(
      {{fmt::format("weights after step {}", state_.step),
        "hash " + weights::hash_of(trained_.model())}},
      "start all processes on processors of the same kind and, with --init, from the same weights");
}

void TrainingRun::save_unsaved() {
  if (unsaved_) {
    save(folder_.last());
    unsaved_ = false;
  }
}

// This saves only in a single process: several would have to save together, and the others do not
// know about the error.
void TrainingRun::save_before_failing() {
  if (task_.group->is_single()) save_unsaved();
}

TrainingState train(const TrainingTask& task, shard::MultiReader& data,
                    shard::MultiReader& validation) {
  TrainingRun run(task, data, validation);
  run.start();
  run.announce();
  run.run();
  return run.state();
}

}  // namespace ql::train
