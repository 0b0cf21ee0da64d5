// Prepares a training run: finds its checkpoint, makes or restores the weights, and logs the first
// lines.

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "net/context.h"
#include "shard/same_vocabulary.h"
#include "train/division.h"
#include "train/training_run.h"
#include "weights/weights.h"

namespace ql::train {

static net::ModelFile describe(const TrainingTask& task, const shard::MultiReader& data) {
  return {task.network, data.vocabulary(), data.vocabulary_text(), training_to_json(task.config),
          task.provenance};
}

// For the log, describes a device other than the CPU and how it runs the steps.
static std::string place_text(const TrainingTask& task) {
  const char* steps = "every operation is launched separately";
  if (task.compute.graph) {
    steps = can_be_recorded(task.network) ? "steps are recorded once and replayed"
                                          : "every operation is launched separately: steps with an "
                                            "adaptive softmax differ, and cannot be recorded";
  }
  const std::string device = task.group->is_single()
                                 ? task.compute.device.str()
                                 : fmt::format("{} GPUs, one per process", task.group->size());
  return fmt::format("{}, {}; {}", device, to_text(task.config.precision), steps);
}

// The first process looks for the checkpoint, and all processes continue from the checkpoint that
// it finds.
static fs::path find_checkpoint(const TrainingTask& task) {
  std::string checkpoint;
  if (task.start == Start::kResume && task.is_first()) {
    checkpoint = find_resume_point(task.run).string();
  }
  if (task.group->is_single()) return checkpoint;
  checkpoint = task.group->from_first(checkpoint);
  // All processes read RUN for a resume and for a rollback.
  const bool resumes = !checkpoint.empty();
  if (!resumes && task.config.divergence != OnDivergence::kRollback) return checkpoint;
  const fs::path wanted = resumes ? fs::path(checkpoint) / "state.json" : task.run;
  std::string found = resumes ? "no state.json" : "no such folder";
  if (fs::exists(wanted)) {
    found = resumes ? "a state.json with hash " + content_hash(read_file(wanted)) : "the folder";
  }
  task.group->require_same({{escaped(resumes ? checkpoint : task.run.string()), found}},
                           "put the folder where all hosts see it, or copy it to each host");
  return checkpoint;
}

// Logs "transformer-ql: 8 layers (scales 3,3, output 2), d_model 256, vocabulary 10,000, 9,254,144
// parameters", and the lengths with the context length.
static void log_network(const net::Network& network, std::int64_t parameters) {
  std::string layers = counted(network.layers(), "layer");
  if (network.scales.size() > 1 || network.output_layers > 0) {
    layers += fmt::format(" (scales {}, output {})", fmt::join(network.scales, ","),
                          network.output_layers);
  }
  log_info("{}: {}, d_model {}, vocabulary {}, {} parameters", to_text(network.architecture),
           layers, network.d_model, with_thousands(network.vocab_size), with_thousands(parameters));
  const net::Lengths& lengths = network.lengths;
  const std::string compressed =
      lengths.compressed_memory > 0
          ? fmt::format(", compressed memory {}", lengths.compressed_memory)
          : "";
  const net::ContextLength context = net::exact_context(network, lengths);
  log_info("segment {}, memory {}{}: context of {} to {} tokens", lengths.segment, lengths.memory,
           compressed, with_thousands(context.minimum), with_thousands(context.maximum));
}

TrainingRun::TrainingRun(const TrainingTask& task, shard::MultiReader& data,
                         shard::MultiReader& validation)
    : validation_data_(check_task(task, data, validation)),
      streams_(data, task.config.batch, task.network.lengths.segment,
               task.group->share_of(task.config.batch)),
      folder_(task.run, task.start, !task.is_first()),
      resumed_(find_checkpoint(task)),
      task_(with_division(task, resumed_, data.frame_bytes(), validation.tokens(), memory_)),
      description_(describe(task_, data)),
      unit_(unit_of_tokens(data.vocabulary().type)),
      trained_(task.network, task_.config, task.compute, *task.group),
      line_("training", "steps", task.config.steps) {
  state_.data = identity_of(data);
  state_.validation = identity_of(validation);
}

void TrainingRun::start() {
  // The condition is not whether RUN/last exists: a run that was killed before its first RUN/last
  // may have left RUN/best, and begin() would remove it.
  if (resumed_.empty()) {
    begin();
  } else {
    resume();
  }
  watch_ = Stopwatch();
  training_time_ = Stopwatch(state_.elapsed);
  require_same_weights();
  if (task_.is_first()) open_log();
  agree();
  last_at_ = elapsed_;
}

void TrainingRun::resume() {
  const fs::path& checkpoint = resumed_;
  const net::ModelFile saved = net::read_model_file(checkpoint);
  require_same_training(checkpoint.string(), saved, read_state(checkpoint), description_,
                        state_.data, state_.validation, task_.named);
  const auto& vocabulary = *description_.vocabulary;
  // The ids are the same. If one of the two sides is silent, that is enough.
  if (saved.vocabulary && !saved.vocabulary->hash.empty() && !vocabulary.hash.empty()) {
    shard::require_same_vocabulary({checkpoint.string(), *saved.vocabulary},
                                   {state_.data.name, vocabulary},
                                   "encode the data with the vocabulary of this checkpoint, or "
                                   "start a new training with another -o");
  }
  const std::int64_t batch = JsonObject(saved.training, checkpoint.string()).integer("batch", 1);
  const bool same_rows = batch == task_.config.batch;
  restore(checkpoint, same_rows ? Rows::kSame : Rows::kOther);
  kept_step_ = state_.step;
  log_info("resuming after step {} from {}", with_thousands(state_.step), checkpoint.string());
  if (task_.is_first() && checkpoint != folder_.last() && fs::exists(folder_.last())) {
    log_info("the damaged {} is kept as {}", folder_.last().string(),
             set_aside(folder_.last(), ".damaged").string());
  }
  if (state_.best) {
    // The first process reads all of RUN/best.
    const machine::ProcessGroup::LongWait wait(*task_.group);
    if (task_.is_first()) restore_best(folder_.path(), state_.best->step, checkpoint);
    task_.group->from_first(std::int64_t{0});
  }
  const std::int64_t processes = task_.group->size();
  if (state_.processes != processes) {
    log_info(
        "the checkpoint was written by {} process{}, but the training continues with {}: sums are "
        "rounded differently",
        state_.processes, state_.processes == 1 ? "" : "es", processes);
  }
  saved_settings_ = settings_of(saved);
  const Json changed = changed_settings(saved_settings_, settings_of(description_));
  for (const auto& change : changed.items()) {
    log_info("{} was {} and is now {}", change.key(), change.value()["before"].dump(),
             change.value()["after"].dump());
    state_.divergences.recent.clear();  // only divergences with the new settings count from now on
  }
  if (!same_rows) {
    state_.cursor = streams_.cursor_from(batch, state_.cursor);
    streams_.set_cursor(state_.step, state_.cursor);
    unsaved_ = true;
    log_info(
        "the batch has changed, so the data is cut into {}: continuing after {} of the {} "
        "tokens of each part, in epoch {}, with empty memories",
        counted(task_.config.batch, "part"), with_thousands(streams_.position(state_.step)),
        with_thousands(streams_.row_tokens()), streams_.epoch(state_.step) + 1);
    return;
  }
  newest_ = checkpoint;
  unsaved_ = checkpoint != folder_.last() || !changed.empty();
  if (task_.is_first() && !unsaved_) {
    // The training run may have been killed after it wrote RUN/last and before it called retain().
    retain(folder_.path(), state_.step, {task_.config.keep_last, task_.config.keep_every},
           kept_step_);
  }
}

// Restores the checkpoint, but keeps the data's paths of this command line.
void TrainingRun::restore(const fs::path& checkpoint, Rows rows) {
  const DataIdentity data = state_.data, validation = state_.validation;
  state_ = read_checkpoint(checkpoint, trained_, rows);
  state_.data = data;
  state_.validation = validation;
  streams_.set_cursor(state_.step, state_.cursor);
  sound_step_ = state_.step;
}

void TrainingRun::open_log() {
  log_.emplace(folder_.log(), state_.step, state_.validation_step, training_time_.seconds(),
               state_.divergences.count, saved_settings_, state_.since_log.steps);
  const Json changed = changed_settings(saved_settings_, settings_of(description_));
  if (changed.empty()) return;
  append_to_log({{"kind", "resume"},
                 {"step", state_.step},
                 {"changed", changed},
                 {"elapsed", training_time_.seconds()}});
}

void TrainingRun::begin() {
  if (task_.start == Start::kResume) {
    log_info("{} has no checkpoint yet: starting a new training", task_.run.string());
  }
  if (!task_.init.empty()) {
    const net::ModelFile origin = net::read_model_file(task_.init);
    shard::require_same_vocabulary(
        {task_.init.string(), recorded_or_size(origin.vocabulary, origin.network.vocab_size)},
        {state_.data.name, *description_.vocabulary},
        "encode the data with the vocabulary of this checkpoint, or leave --init out");
    weights::load_weights(trained_.model(), weights::read_weights(task_.init));
    log_info("weights from {} ({})", task_.init.string(), to_text(origin.network.architecture));
  }
  saved_settings_ = settings_of(description_);
  // The other processes may still read the weights of --init by a link in this folder.
  task_.group->from_first(std::int64_t{0});
  if (!task_.is_first()) return;
  // The log may be all that is left of a long training run.
  const fs::path log = folder_.log();
  if (task_.start != Start::kForce && fs::exists(log) && !fs::is_empty(log)) {
    log_info("the log of an earlier training is kept as {}", set_aside(log, ".old").string());
  }
  folder_.clear();
}

void TrainingRun::announce() const {
  const TrainingConfig& config = task_.config;
  if (!task_.compute.device.is_cpu()) log_info("{}", place_text(task_));
  if (!task_.machine.empty()) log_info("{}", task_.machine);
  log_network(task_.network, trained_.model().parameter_count());
  log_info("data {}: {} tokens in {} of {}", state_.data.words(),
           with_thousands(state_.data.tokens), counted(streams_.batch(), "row"),
           with_thousands(streams_.row_tokens()));
  log_info("validation {}: {} tokens", state_.validation.words(),
           with_thousands(state_.validation.tokens));
  const std::string budget = config.minutes > 0 ? fmt::format(" or {} minute{}", config.minutes,
                                                              config.minutes == 1 ? "" : "s")
                                                : "";
  log_info("{} step{} of {} tokens ({:.1f} epochs){}", with_thousands(config.steps),
           config.steps == 1 ? "" : "s", with_thousands(streams_.batch() * streams_.segment()),
           static_cast<double>(config.steps) / static_cast<double>(streams_.steps_per_epoch()),
           budget);
  if (task_.compute.device.is_cpu()) log_division(task_, memory_);
  const double highest = highest_rate_in_warm_up(config);
  if (highest > 0 && static_cast<double>(state_.step) < config.warmup_steps) {
    log_warning(
        "warmup_steps is {}, so the warm-up does not end before the training does: the learning "
        "rate reaches at most {:.2g} (learning_rate is {:.2g}); lower warmup_steps, or make it a "
        "fraction of the training, such as 0.1",
        config.warmup_steps, highest, config.learning_rate);
  }
}

}  // namespace ql::train
