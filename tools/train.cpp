// Trains a network on shards and writes checkpoints. qltrain replaces itself by this program
// (tools/qltrain.cpp).

#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/provenance.h"
#include "base/strings.h"
#include "base/tool.h"
#include "installed.h"
#include "machine/device.h"
#include "machine/process_group.h"
#include "machine/threads.h"
#include "net/model_file.h"
#include "tables.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace {

using namespace ql;

// Returns the assignments of --set and of its short forms (for instance, --steps 100 becomes
// steps=100).
std::vector<std::string> overrides(const Options& options) {
  std::vector<std::string> assignments = options.texts("set");
  const auto add = [&assignments](const std::string& key, const std::string& value) {
    assignments.push_back(key + "=" + value);
  };
  for (const char* name : {"steps", "seed"}) {
    if (options.given(name)) add(name, fmt::format("{}", options.integer(name)));
  }
  if (options.given("precision")) add("precision", options.text("precision"));
  if (options.given("minutes")) {
    const double minutes = options.real("minutes");
    if (minutes == 0) {
      throw UsageError("--minutes", "expected more than 0, found 0", "leave it out for no limit");
    }
    add("minutes", fmt::format("{}", minutes));
  }
  return assignments;
}

train::Start start_of(const Options& options) {
  if (options.flag("resume")) return train::Start::kResume;
  return options.flag("force") ? train::Start::kForce : train::Start::kNew;
}

train::ComputeDevice compute_device_of(const Options& options, const machine::ProcessGroup& group) {
  const train::ComputeDevice compute{machine::find_device(options.text("device"), group),
                                     !options.flag("eager")};
  if (options.flag("eager") && compute.device.is_cpu()) {
    throw UsageError("--eager",
                     "affects GPUs only: on the CPU, steps are never captured as CUDA graphs",
                     "give --device cuda, or leave --eager out");
  }
  return compute;
}

// Holds the data, and the preset with the changes that --set and its short forms make.
struct Settings {
  std::string path;
  std::vector<std::string> data, validation;  // folders
  std::vector<std::string> named;             // keys that the command line sets
  net::Preset preset;
  train::TrainingConfig training;
};

// Returns true if state.json and model.json of the checkpoint are not damaged.
bool has_settings(const fs::path& checkpoint) {
  try {
    net::check_files(checkpoint, {"model.json"}, "");
    return true;
  } catch (const Error& error) {
    if (!train::means_damage(error)) throw;
    return false;
  }
}

// Returns the checkpoint from which the data and the preset are taken if they are not given with
// --resume: the newest one that has_settings(). Its other files may be damaged, because the trainer
// looks for the newest complete checkpoint later.
fs::path checkpoint_to_resume(const Options& options) {
  const fs::path run = options.text("output");
  bool recorded = false;
  for (const fs::path& checkpoint : train::newest_checkpoints(run)) {
    if (has_settings(checkpoint)) return checkpoint;
    recorded = recorded || fs::exists(checkpoint / "state.json");
  }
  if (recorded) train::find_resume_point(run);  // throws, because no checkpoint is complete
  throw UsageError(run.string(), "found no checkpoint that records the data and the preset",
                   "give --data, --valid and --model");
}

// Returns the folders of the data that a checkpoint names. Throws Error, which advises `option`, if
// one of them was moved or removed.
std::vector<std::string> recorded_folders(const train::DataIdentity& data,
                                          const fs::path& checkpoint, const std::string& option) {
  std::vector<std::string> folders{data.name};
  if (data.more) folders.insert(folders.end(), data.more->begin(), data.more->end());
  for (const std::string& folder : folders) {
    std::error_code unknown;
    if (fs::exists(folder, unknown) || unknown) continue;
    throw Error(folder,
                fmt::format("does not exist, but {} names it as its data", checkpoint.string()),
                fmt::format("give the data's present place with {}", option));
  }
  return folders;
}

Settings read_settings(const Options& options) {
  Settings settings;
  fs::path preset;
  if (options.has("model")) preset = preset_file(options.text("model"));
  settings.data = options.texts("data");
  settings.validation = options.texts("valid");
  if (preset.empty() || settings.data.empty() || settings.validation.empty()) {
    const fs::path checkpoint = checkpoint_to_resume(options);
    const train::TrainingState state = train::read_state(checkpoint);
    if (preset.empty()) preset = checkpoint;
    if (settings.data.empty()) {
      settings.data = recorded_folders(state.data, checkpoint, "--data");
    }
    if (settings.validation.empty()) {
      settings.validation = recorded_folders(state.validation, checkpoint, "--valid");
    }
  }
  settings.path = preset.string();
  const std::vector<std::string> assignments = overrides(options);
  for (const std::string& assignment : assignments) {
    settings.named.push_back(assignment.substr(0, assignment.find('=')));
  }
  Conflicts conflicts;
  settings.preset = net::read_preset(preset, assignments, train::training_keys(), conflicts);
  const std::string where =
      settings.path + (assignments.empty() ? "" : " with --set") + ": training";
  settings.training = train::training_from_json({settings.preset.training, where}, conflicts);
  train::find_conflicts(settings.training, settings.preset.network, conflicts);
  conflicts.raise("--set");
  // A resume may change few keys, and refuses the others.
  if (options.flag("resume")) return settings;
  for (const std::string& key : std::set(settings.named.begin(), settings.named.end())) {
    const std::string why = train::why_unread(key, settings.training, settings.preset.network);
    if (!why.empty()) log_warning("--set {}: this training does not read the key: {}", key, why);
  }
  return settings;
}

void train(const Options& options, machine::ProcessGroup& group) {
  const Settings settings = read_settings(options);
  const train::ComputeDevice compute = compute_device_of(options, group);
  shard::MultiReader data(settings.data);
  shard::MultiReader validation(settings.validation);

  train::TrainingTask task;
  task.group = &group;
  task.run = options.text("output");
  task.start = start_of(options);
  task.compute = compute;
  task.config = settings.training;
  task.named = settings.named;
  const machine::Precision precision =
      machine::set_up_precision(compute.device, task.config.precision, group);
  task.config.precision = precision;
  // This call comes after the cheap checks, because it may read all of the data.
  task.network = train::with_vocabulary(settings.preset.network, settings.path, data);
  task.init = options.has("init") ? options.text("init") : "";
  task.stop_at = options.has("stop-at") ? options.integer("stop-at") : 0;
  task.provenance = provenance(options.resolved());

  const auto setup = machine::set_up_threads(static_cast<int>(options.integer("threads")), group);
  task.machine = fmt::format("{}, {} ({:.0f} GFLOP/s)", counted(setup.threads, "thread"),
                             setup.blas, setup.gflops);
  if (compute.device.is_cpu()) task.machine += ", " + machine::products_on_cpu(precision);
  if (!setup.own_kernels.empty()) {
    log_warning(
        "OPENBLAS_CORETYPE makes {} compute; for this processor OpenBLAS would choose its kernels "
        "for {}, which may be faster: unset OPENBLAS_CORETYPE",
        setup.blas, setup.own_kernels);
  }
  train::train(task, data, validation);
}

void run(const Options& options) {
  machine::run_in_processes(std::chrono::seconds(options.integer("timeout")),
                            [&](machine::ProcessGroup& group) { train(options, group); });
}

}  // namespace

int main(int argc, char** argv) { return run_tool(qltrain_table, argc, argv, run); }
