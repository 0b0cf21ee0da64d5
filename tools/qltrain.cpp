// qltrain: shards -> checkpoint.
#include <chrono>

#include "base/common_options.h"
#include "base/error.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/number.h"
#include "base/provenance.h"
#include "base/system_memory.h"
#include "base/tool.h"
#include "net/model_file.h"
#include "nn/device.h"
#include "nn/process_group.h"
#include "nn/threads.h"
#include "train/compatible.h"
#include "train/trainer.h"

namespace {

using ql::Option;
using ql::OptionType;

Option option(const char* name, OptionType type, const char* value_name, const char* help) {
  Option made;
  made.name = name;
  made.type = type;
  made.value_name = value_name;
  made.help = help;
  return made;
}

Option required(Option made, char letter = 0) {
  made.required = true;
  made.letter = letter;
  return made;
}

Option whole_number(const char* name, std::int64_t minimum, const char* help) {
  Option made = option(name, OptionType::kInteger, "N", help);
  made.minimum = minimum;
  return made;
}

std::vector<Option> option_table() {
  Option set =
      option("set", OptionType::kText, "KEY=VALUE",
             "Replace one value of the preset's network or training. ql-checkpoint(5) lists "
             "the keys.");
  set.repeatable = true;
  Option processes = whole_number("processes", 1,
                                  "Processes on this machine that share the rows of every batch. "
                                  "torchrun, mpirun and srun start them instead, also on several "
                                  "machines.");
  processes.default_value = "1";
  processes.maximum = 1024;
  Option device = option("device", OptionType::kText, "DEVICE",
                         "Where to compute: cpu, cuda (the first GPU; for several processes one "
                         "each) or cuda:N.");
  device.default_value = "cpu";
  Option precision = option("precision", OptionType::kChoice, "PRECISION",
                            "Of matrix products: --set precision=PRECISION. All but float32 need a "
                            "GPU. Weights and optimizer are float32 always.");
  precision.choices = ql::all_names<ql::nn::Precision>();
  return {
      required(option("data", OptionType::kFolder, "DIR", "Training data, packed by qlbin(1).")),
      required(option("valid", OptionType::kFolder, "DIR",
                      "Validation data, encoded with the same vocabulary.")),
      required(option("model", OptionType::kFile, "PRESET",
                      "The network and its training: a preset file."),
               'm'),
      required(option("output", OptionType::kFolder, "RUN",
                      "Folder for the checkpoints RUN/best and RUN/last and for RUN/log.jsonl; "
                      "created when absent."),
               'o'),
      set,
      option("init", OptionType::kFolder, "CHECKPOINT",
             "Start from these weights. The parameters must have the same names and shapes; the "
             "lengths may differ."),
      option("resume", OptionType::kFlag, "",
             "Continue from the newest checkpoint of RUN; without one start anew."),
      option("force", OptionType::kFlag, "", "Replace what an earlier training left in RUN."),
      whole_number("steps", 1, "Length of the whole training and its schedule: --set steps=N."),
      whole_number("stop-at", 1,
                   "Stop after step N with a checkpoint. The schedule stays as it is, --resume "
                   "continues it."),
      option("minutes", OptionType::kReal, "M",
             "Wall-clock budget in which the schedule is completed: --set minutes=M. Such a "
             "training cannot be repeated bit for bit."),
      whole_number("seed", 0, "Seed of the weights and of dropout: --set seed=N."),
      ql::threads_option(
          "With several processes N is for each, and 0 divides the cores of a machine among them."),
      processes,
      ql::timeout_option(),
      device,
      precision,
      option("eager", OptionType::kFlag, "",
             "On a GPU launch every operation of every step by itself, instead of recording a step "
             "once and replaying it."),
  };
}

const ql::ToolTable& table() {
  static const ql::ToolTable kTable{
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
  return kTable;
}

// --steps 100 is --set steps=100, and so on.
std::vector<std::string> overrides(const ql::Options& options) {
  std::vector<std::string> assignments = options.texts("set");
  for (const char* name : {"steps", "seed"}) {
    if (options.given(name)) {
      assignments.push_back(fmt::format("{}={}", name, options.integer(name)));
    }
  }
  if (options.given("precision")) {
    assignments.push_back("precision=" + options.text("precision"));
  }
  if (options.given("minutes")) {
    assignments.push_back(fmt::format("minutes={}", options.real("minutes")));
  }
  return assignments;
}

ql::train::Start start_of(const ql::Options& options) {
  if (options.flag("resume") && options.flag("force")) {
    throw ql::UsageError("--resume and --force", "contradict each other", "give one of them");
  }
  if (options.flag("resume")) {
    return ql::train::Start::kResume;
  }
  return options.flag("force") ? ql::train::Start::kForce : ql::train::Start::kNew;
}

ql::train::Place place_of(const ql::Options& options, const ql::nn::ProcessGroup* group) {
  const ql::train::Place place{ql::nn::find_device(options.text("device"), group),
                               !options.flag("eager")};
  if (options.flag("eager") && place.device.is_cpu()) {
    throw ql::UsageError("--eager", "is about GPUs: nothing is recorded on the CPU",
                         "add --device cuda, or leave it out");
  }
  return place;
}

void train(const ql::Options& options, ql::nn::ProcessGroup* group) {
  const ql::train::Place place = place_of(options, group);
  const std::string preset_path = options.text("model");
  const std::vector<std::string> assignments = overrides(options);
  const ql::net::Preset preset =
      ql::net::read_preset(preset_path, assignments, ql::train::training_keys());
  ql::shard::TokenReader data(options.text("data"));
  ql::shard::TokenReader validation(options.text("valid"));

  ql::train::TrainingTask task;
  task.run = options.text("output");
  task.start = start_of(options);
  task.place = place;
  task.group = group;
  task.config = ql::train::training_from_json(
      {preset.training, preset_path + (assignments.empty() ? "" : " with --set") + ": training"});
  ql::nn::set_up_precision(place.device, task.config.precision);
  // Last of what is checked: it may read all of the data.
  task.network = ql::train::with_vocabulary(preset.network, preset_path, data, [group] {
    if (group != nullptr) {
      group->get_on();
    }
  });
  task.init = options.has("init") ? options.text("init") : "";
  task.stop_at = options.has("stop-at") ? options.integer("stop-at") : 0;
  ql::Json configuration = ql::Json::object();
  for (const auto& [name, value] : options.resolved()) {
    configuration[name] = value;
  }
  task.provenance = ql::provenance(configuration);

  const auto setup = ql::nn::set_up_threads(static_cast<int>(options.integer("threads")));
  task.machine = fmt::format("{} thread{}, {} ({:.0f} GFLOP/s)", setup.threads,
                             setup.threads == 1 ? "" : "s", setup.blas, setup.gflops);
  const ql::train::TrainingState state = ql::train::train(task, data, validation);
  ql::log_info("memory needed: {}", ql::human_bytes(ql::peak_resident_bytes()));
  ql::log_info("stopped after step {} of {}: {}", ql::with_thousands(state.step),
               ql::with_thousands(task.config.steps), (task.run / "last").string());
}

void run(const ql::Options& options) {
  if (ql::run_processes(static_cast<int>(options.integer("processes")))) {
    return;
  }
  const auto group = ql::nn::join_processes(std::chrono::seconds(options.integer("timeout")));
  ql::nn::run_in_group(group.get(), [&] { train(options, group.get()); });
}

}  // namespace

int main(int argc, char** argv) { return ql::run_tool(table, argc, argv, run); }
