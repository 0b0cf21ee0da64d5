// Prepares a training run: checks the task, chooses micro-batches and accumulation steps, and makes
// or restores the weights.

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/provenance.h"
#include "base/resources.h"
#include "base/strings.h"
#include "machine/device.h"
#include "machine/tensor_memory.h"
#include "net/context.h"
#include "shard/same_vocabulary.h"
#include "train/training_run.h"
#include "weights/weights.h"

namespace ql::train {

// Throws Error for a folder whose name a checkpoint cannot record.
static DataIdentity identity_of(const shard::MultiReader& data) {
  std::vector<std::string> names;
  for (const shard::TokenReader& folder : data.folders()) {
    names.push_back(folder.name());
    if (find_invalid_utf8(names.back()) < names.back().size()) {
      throw Error(escaped(names.back()),
                  "the folder's name is not UTF-8, so a checkpoint cannot record it",
                  "rename the folder");
    }
  }
  DataIdentity identity{names.front(), {}, data.hash(), data.tokens()};
  if (names.size() > 1) identity.more.emplace(names.begin() + 1, names.end());
  return identity;
}

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

static void warn_of_unknown_tokens(const shard::MultiReader& data,
                                   const shard::MultiReader& validation) {
  if (!data.counts() || !validation.counts()) return;
  const std::int64_t unknown = data.counts()->unknown;
  const std::int64_t in_validation = validation.counts()->unknown;
  if (in_validation == 0) return;
  if (unknown > 0) {
    const double usual = static_cast<double>(unknown) / static_cast<double>(data.tokens());
    if (!eval::has_many_unknown(in_validation, validation.tokens(), usual)) return;
    log_warning(
        "<unk> is {} of the {} tokens of {}, several times its share in {}; prepare both texts in "
        "the same way",
        with_thousands(in_validation), with_thousands(validation.tokens()), validation.name(),
        data.name());
    return;
  }
  log_warning(
      "<unk> is {} of the {} tokens of {}, but does not occur in {}, so the network never learns "
      "<unk>; make a vocabulary of words or characters with qltok vocab --min-count 2 or more",
      with_thousands(in_validation), with_thousands(validation.tokens()), validation.name(),
      data.name());
}

static std::string describe(const DataIdentity& data, const shard::MultiReader& reader) {
  return fmt::format("{} tokens with hash {} (vocabulary: {})", with_thousands(data.tokens),
                     data.hash, shard::describe(reader.vocabulary()));
}

// Throws Error if the processes of the group differ in anything that the training run depends on.
static void require_same_job(const TrainingTask& task, const shard::MultiReader& data,
                             const shard::MultiReader& validation) {
  std::vector<machine::Fact> facts = {{"the version", version()},
                                      {"--data", describe(identity_of(data), data)},
                                      {"--valid", describe(identity_of(validation), validation)}};
  // The processes compare their facts by position, so keys without a value are facts, too.
  const auto add = [&facts](const std::vector<std::string>& keys, const Json& settings) {
    for (const std::string& key : keys) {
      facts.push_back({key, settings.contains(key) ? settings[key].dump() : "no value"});
    }
  };
  add(key_names<net::Network>(), net::network_to_json(task.network));
  add(training_keys(), training_to_json(task.config));
  static const std::array<const char*, 3> kStarts{"a new training", "--resume", "--force"};
  facts.push_back({"the start", kStarts.at(static_cast<std::size_t>(task.start))});
  facts.push_back({"--init", task.init.empty() ? "none" : "a checkpoint"});
  facts.push_back({"--stop-at", std::to_string(task.stop_at)});
  facts.push_back({"--device", task.compute.device.is_cpu() ? "cpu" : "cuda"});
  if (task.compute.device.is_cpu()) {
    facts.push_back({machine::kVectorVersionVariable, to_text(machine::vector_version())});
  }
  task.group->require_same(facts);
}

// Throws UsageError if --force would remove the checkpoint of --init, before there is a new one.
static void require_init_stays(const TrainingTask& task) {
  if (task.start != Start::kForce || task.init.empty()) return;
  const std::filesystem::path init = net::checkpoint_folder(task.init);
  for (const std::filesystem::path& checkpoint : newest_checkpoints(task.run)) {
    std::error_code ignored;
    // --force removes only the link itself, not the folder to which it leads.
    if (fs::is_symlink(fs::symlink_status(checkpoint, ignored))) continue;
    if (!fs::equivalent(checkpoint, init, ignored)) continue;
    throw UsageError(
        "--init",
        fmt::format("{} would be removed by --force before a new checkpoint is written",
                    task.init.string()),
        "choose another -o, or copy the checkpoint to another folder and give that");
  }
}

// Checks that task, data and validation data fit together, and returns `validation`.
static shard::MultiReader& checked(const TrainingTask& task, shard::MultiReader& data,
                                   shard::MultiReader& validation) {
  if (!task.group->is_single()) require_same_job(task, data, validation);
  require_init_stays(task);
  net::make_geometry(task.network, task.network.lengths);
  shard::require_same_vocabulary({validation.name(), validation.vocabulary()},
                                 {data.name(), data.vocabulary()},
                                 "encode all texts with the vocabulary of the training text");
  eval::check_length(eval::source_of(validation));
  warn_of_unknown_tokens(data, validation);
  if (task.network.reset_memory_at_documents) {
    // The readers keep the document starts from now on, so reading the starts cannot fail or be
    // interrupted in the middle of a step or a validation.
    data.document_starts();
    validation.document_starts();
  }
  if (!task.compute.device.is_cpu() && task.config.divergence != OnDivergence::kStop) {
    throw ConfigError("training: divergence",
                      fmt::format("{} needs a step's loss before the next step begins, but steps "
                                  "on {} do not wait for the loss",
                                  to_text(task.config.divergence), task.compute.device.str()),
                      "set divergence to stop, or train on the CPU");
  }
  Conflicts conflicts;
  find_conflicts(task.config, task.network, conflicts);
  conflicts.raise();
  return validation;
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

// Returns the configuration with the most rows that a process of the group has as the batch.
static TrainingConfig largest_share(const TrainingTask& task) {
  TrainingConfig config = task.config;
  config.batch = (config.batch - 1) / task.group->size() + 1;
  return config;
}

// Returns the largest of the values that the processes of the group pass.
static std::int64_t largest(machine::ProcessGroup& group, std::int64_t value) {
  std::int64_t most = value;
  for (const std::string& text : group.gather(std::to_string(value))) {
    most = std::max<std::int64_t>(most, std::stoll(text));
  }
  return most;
}

// Chooses the numbers of slices (micro-batches) and passes (accumulation steps of each) that are 0
// in `config`, and returns the memory that the run then needs, or nothing if it needs more than
// `limit` bytes.
static std::optional<TrainingMemory> divide(const TrainingTask& task, TrainingConfig& config,
                                            std::int64_t validation_tokens, std::int64_t limit,
                                            std::int64_t known) {
  const int threads = at::get_num_threads();
  MemoryTrial trial(task.network, config, threads, limit);
  const auto fits = [&](std::int64_t passes) {
    return trial.step(config.slices, passes).has_value();
  };
  const auto fewest_passes = [&] {
    return choose_passes((config.batch - 1) / config.slices + 1, fits);
  };
  const bool chooses_slices = config.slices == 0, chooses_passes = config.passes == 0;
  if (chooses_slices) {
    config.slices = choose_slices(config.batch, task.network.lengths.segment, threads);
    if (!task.group->is_single()) {
      // choose_slices() gives two slices to one thread, so that one thread adds up gradients in the
      // same order as two. Several processes use another order anyway. So one thread takes one
      // slice here: its matrix products are larger, and faster.
      config.slices = std::min<std::int64_t>(config.slices, threads);
    }
  }
  if (chooses_passes) config.passes = fewest_passes();
  // Each slice has gradients of its own, which passes do not reduce. So if the run does not fit
  // into memory even with one row per pass, fewer slices are used.
  while (chooses_slices && config.slices > 2 && !fits(config.passes)) {
    // A single slice would make the results depend on the number of threads.
    config.slices = std::max<std::int64_t>(2, config.slices / 2);
    if (chooses_passes) config.passes = fewest_passes();
  }
  std::optional<TrainingMemory> memory = trial.step(config.slices, config.passes);
  const bool steps_fit = memory.has_value();
  if (steps_fit) memory = trial.with_validation(*memory, validation_tokens);
  if (!memory) {
    const std::int64_t passes = steps_fit ? config.passes : fewest_passes();
    log_warning(
        "this process needs more than nine tenths of the {} of memory available: the system may "
        "kill it; {}",
        human_bytes(known),
        !steps_fit && fits(passes) ? fmt::format("give --set passes={}", passes)
                                   : "use a smaller batch, shorter lengths or a smaller network");
  }
  return memory;
}

// Sets the numbers of slices and passes, and measures the memory that the run will need. A resume
// takes the numbers of its checkpoint, so that gradients are added up in the same order as before,
// unless the command line names them. Otherwise this process chooses the numbers for its machine.
// In a group, all processes take the slices of the first process, and the most passes that one of
// them needs with these slices.
static TrainingTask with_slices(TrainingTask task, const fs::path& checkpoint,
                                std::int64_t frame_bytes, std::int64_t validation_tokens,
                                std::optional<TrainingMemory>& memory) {
  // A GPU computes all rows at once.
  if (!task.compute.device.is_cpu()) return task;
  TrainingConfig config = largest_share(task);
  if (!checkpoint.empty()) {
    const net::ModelFile file = net::read_model_file(checkpoint);
    const JsonObject saved(file.training, checkpoint.string());
    const auto take_saved = [&](const char* key, std::int64_t& number) {
      const auto& named = task.named;
      const bool is_named = std::find(named.begin(), named.end(), key) != named.end();
      if (number == 0 && !is_named) number = saved.integer(key, 0);
    };
    take_saved("slices", config.slices);
    take_saved("passes", config.passes);
  }
  const std::int64_t known = available_bytes() / task.group->local_size();
  // The trial of a process must not begin before all processes have looked.
  task.group->from_first(std::int64_t{0});
  // A tenth is left for the system's cache of files.
  const std::int64_t available =
      known == 0 ? std::numeric_limits<std::int64_t>::max() : known - known / 10;
  const std::int64_t data = config.batch * frame_bytes;
  const auto measure = [&](std::int64_t slices, std::int64_t passes) {
    config.slices = slices;
    config.passes = passes;
    memory = divide(task, config, validation_tokens, available - data, known);
    machine::return_freed_memory();
  };
  const std::int64_t given_passes = config.passes;
  measure(config.slices, given_passes);
  // Other processes may have more threads, or less memory.
  task.config.slices = task.group->from_first(config.slices);
  if (config.slices != task.config.slices) measure(task.config.slices, given_passes);
  task.config.passes = largest(*task.group, config.passes);
  if (config.passes != task.config.passes) measure(task.config.slices, task.config.passes);
  if (memory) {
    memory->process = resident_bytes();
    memory->data = data;
  }
  return task;
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

// Logs "2 slices of up to 64 rows, each in 1 pass" or "each in up to 3 passes", and the measured
// memory.
static void log_division(const TrainingConfig& config,
                         const std::optional<TrainingMemory>& memory) {
  const std::vector<Slice> slices = split_rows(config.batch, config.slices, config.passes);
  std::int64_t rows = 0;
  std::size_t passes = 0;
  for (const Slice& slice : slices) {
    rows = std::max(rows, slice.back().first + slice.back().count - slice.front().first);
    passes = std::max(passes, slice.size());
  }
  log_info("{} of up to {}, each in {}", counted(static_cast<std::int64_t>(slices.size()), "slice"),
           counted(rows, "row"),
           passes == 1 ? std::string("1 pass") : fmt::format("up to {} passes", passes));
  if (!memory) return;
  log_info(
      "memory needed: {} ({} for the program, {} for weights and optimizer, {} for memories, {} "
      "for data; {} for a step, or {} for validation if that is more)",
      human_bytes(memory->total()), human_bytes(memory->process), human_bytes(memory->weights),
      human_bytes(memory->memories), human_bytes(memory->data), human_bytes(memory->step),
      human_bytes(memory->validation));
}

TrainingRun::TrainingRun(const TrainingTask& task, shard::MultiReader& data,
                         shard::MultiReader& validation)
    : validation_data_(checked(task, data, validation)),
      streams_(data, task.config.batch, task.network.lengths.segment,
               task.group->share_of(task.config.batch)),
      folder_(task.run, task.start, !task.is_first()),
      resumed_(find_checkpoint(task)),
      task_(with_slices(task, resumed_, data.frame_bytes(), validation.tokens(), memory_)),
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
  if (task_.compute.device.is_cpu()) log_division(largest_share(task_), memory_);
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
