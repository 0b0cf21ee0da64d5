// qltrain trains a network on shards and writes checkpoints.
#include <utility>

#include "base/common_options.h"
#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/option_builders.h"
#include "base/provenance.h"
#include "base/resources.h"
#include "base/tool.h"
#include "in_processes.h"
#include "machine/device.h"
#include "machine/threads.h"
#include "net/model_file.h"
#include "train/compatible.h"
#include "train/trainer.h"

namespace {

using namespace ql;

std::vector<Option> own_options() {
  return {
      required(
          make_option("data", OptionType::kFolder, "DIR", "Training data, packed by qlbin(1).")),
      required(make_option("valid", OptionType::kFolder, "DIR",
                           "Validation data, encoded with the same vocabulary.")),
      required(with_letter('m', make_option("model", OptionType::kFile, "PRESET",
                                            "The network and its training: a preset file."))),
      required(
          with_letter('o', make_option("output", OptionType::kFolder, "RUN",
                                       "Folder for the checkpoints RUN/best and RUN/last and for "
                                       "RUN/log.jsonl; created when absent."))),
      repeatable(make_option("set", OptionType::kText, "KEY=VALUE",
                             "Replace one value of the preset's network or training. "
                             "ql-checkpoint(5) lists the keys.")),
      make_option("init", OptionType::kFolder, "CHECKPOINT",
                  "Start from these weights. The parameters must have the same names and shapes; "
                  "the lengths may differ."),
      make_flag("resume", "Continue from the newest checkpoint of RUN; without one start anew."),
      make_flag("force", "Replace what an earlier training left in RUN."),
      make_integer("steps", "Length of the whole training and its schedule: --set steps=N.", "", 1),
      make_integer("stop-at",
                   "Stop after step N with a checkpoint. The schedule stays as it is, --resume "
                   "continues it.",
                   "", 1),
      make_option("minutes", OptionType::kReal, "M",
                  "Wall-clock budget in which the schedule is completed: --set minutes=M. Such a "
                  "training cannot be repeated bit for bit."),
      make_integer("seed", "Seed of the weights and of dropout: --set seed=N.", "", 0)};
}

std::vector<Option> option_table() {
  const Option precision = make_choice(
      "precision", "PRECISION",
      "Of matrix products: --set precision=PRECISION. All but float32 need a GPU. Weights and "
      "optimizer are float32 always.",
      all_names<machine::Precision>());
  const Option eager = make_flag("eager",
                                 "On a GPU launch every operation of every step by itself, instead "
                                 "of recording a step once and replaying it.");
  return joined(joined(own_options(), machine_options("share the rows of every batch",
                                                      without_default(precision))),
                {eager});
}

ToolTable table() {
  return {
      "qltrain",
      "train a network of the Transformer-QL family on packed data",
      {{"",
        "",
        "",
        option_table(),
        {{"qltrain --data data/train --valid data/valid -m demo-ql.json -o runs/ql",
          "train as the preset says"},
         {"qltrain --data data/train --valid data/valid -m demo-ql.json -o runs/ql --resume",
          "continue after an interruption"},
         {"qltrain --data data/train --valid data/valid -m demo-xl.json -o runs/xl --minutes 5 "
          "--set dropout=0.2",
          "with another dropout, in five minutes"},
         {"qltrain --data data/train --valid data/valid -m simplebooks-2-ql.json -o runs/big "
          "--device cuda --precision bfloat16",
          "on a GPU"},
         {"torchrun --no-python --nproc-per-node 4 qltrain --data data/train --valid data/valid -m "
          "demo-ql.json -o runs/ql",
          "with four processes that share every batch"}}}}};
}

// --steps 100 stands for --set steps=100, and so on.
std::vector<std::string> overrides(const Options& options) {
  std::vector<std::string> assignments = options.texts("set");
  for (const char* name : {"steps", "seed"}) {
    if (options.given(name)) {
      assignments.push_back(fmt::format("{}={}", name, options.integer(name)));
    }
  }
  if (options.given("precision")) assignments.push_back("precision=" + options.text("precision"));
  if (options.given("minutes")) {
    assignments.push_back(fmt::format("minutes={}", options.real("minutes")));
  }
  return assignments;
}

train::Start start_of(const Options& options) {
  if (options.flag("resume") && options.flag("force")) {
    throw UsageError("--resume and --force", "contradict each other", "give one of them");
  }
  if (options.flag("resume")) return train::Start::kResume;
  return options.flag("force") ? train::Start::kForce : train::Start::kNew;
}

train::ComputeDevice compute_device_of(const Options& options, const machine::ProcessGroup* group) {
  const train::ComputeDevice compute{machine::find_device(options.text("device"), group),
                                     !options.flag("eager")};
  if (options.flag("eager") && compute.device.is_cpu()) {
    throw UsageError("--eager", "is about GPUs: nothing is recorded on the CPU",
                     "add --device cuda, or leave it out");
  }
  return compute;
}

// The preset after --set and the options that stand for it.
struct Settings {
  std::string path;
  net::Preset preset;
  train::TrainingConfig training;
};

Settings read_settings(const Options& options) {
  const std::string path = options.text("model");
  const std::vector<std::string> assignments = overrides(options);
  net::Preset preset = net::read_preset(path, assignments, train::training_keys());
  const std::string where = path + (assignments.empty() ? "" : " with --set") + ": training";
  train::TrainingConfig training = train::training_from_json({preset.training, where});
  return {path, std::move(preset), std::move(training)};
}

void train(const Options& options, const Settings& settings, machine::ProcessGroup* group) {
  const train::ComputeDevice compute = compute_device_of(options, group);
  shard::TokenReader data(options.text("data"));
  shard::TokenReader validation(options.text("valid"));

  train::TrainingTask task;
  task.run = options.text("output");
  task.start = start_of(options);
  task.compute = compute;
  task.group = group;
  task.config = settings.training;
  machine::set_up_precision(compute.device, task.config.precision);
  // This check comes last, because it may read all of the data.
  task.network = train::with_vocabulary(settings.preset.network, settings.path, data, [group] {
    if (group != nullptr) group->get_on();
  });
  task.init = options.has("init") ? options.text("init") : "";
  task.stop_at = options.has("stop-at") ? options.integer("stop-at") : 0;
  task.provenance = provenance(options.resolved());

  const auto setup = machine::set_up_threads(static_cast<int>(options.integer("threads")));
  task.machine = fmt::format("{} thread{}, {} ({:.0f} GFLOP/s)", setup.threads,
                             setup.threads == 1 ? "" : "s", setup.blas, setup.gflops);
  const train::TrainingState state = train::train(task, data, validation);
  log_info("memory needed: {}", human_bytes(peak_resident_bytes()));
  log_info("stopped after step {} of {}: {}", with_thousands(state.step),
           with_thousands(task.config.steps), (task.run / "last").string());
}

void run(const Options& options) {
  const Settings settings = read_settings(options);
  const std::int64_t processes = options.integer("processes");
  if (processes > settings.training.batch) {
    throw UsageError("--processes",
                     fmt::format("{} processes cannot share a batch of {} rows", processes,
                                 settings.training.batch),
                     "use fewer processes, or a larger batch");
  }
  run_in_processes(options, [&settings](const Options& given, machine::ProcessGroup* group) {
    train(given, settings, group);
  });
}

}  // namespace

int main(int argc, char** argv) { return run_tool(table, argc, argv, run); }
