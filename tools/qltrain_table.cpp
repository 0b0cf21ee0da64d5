// Makes the option table of qltrain.

#include "base/options.h"
#include "base/tool.h"
#include "installed.h"
#include "machine/precision.h"
#include "net/network.h"
#include "tables.h"
#include "train/config.h"

using namespace ql;

// Returns "KEY=" for each key of the objects "network" and "training".
static std::vector<std::string> settings() {
  std::vector<std::string> words = key_names<net::Network>();
  const std::vector<std::string> training = train::training_keys();
  words.insert(words.end(), training.begin(), training.end());
  for (std::string& word : words) word += '=';
  return words;
}

static std::vector<Option> own_options() {
  return {
      repeatable(make_option("data", OptionType::kFolder, "DIR",
                             "Training data, packed by qlbin(1). Required, unless --resume takes "
                             "it from the checkpoint. Several folders are read as one, in the "
                             "given order, as qlbin merge joins them.")),
      repeatable(make_option("valid", OptionType::kFolder, "DIR",
                             "Validation data, encoded with the same vocabulary. Required under "
                             "the same condition as --data.")),
      offering(preset_names,
               with_letter(
                   'm', make_option(
                            "model", OptionType::kFile, "PRESET",
                            "The network and its training: a preset file, the name of an installed "
                            "one, or a checkpoint; the network alone: published weights. Required "
                            "under the same condition as --data."))),
      required(with_letter('o', make_option("output", OptionType::kFolder, "RUN",
                                            "Folder for the checkpoints RUN/best and RUN/last and "
                                            "for RUN/log.jsonl; created when absent."))),
      offering(settings, repeatable(make_option(
                             "set", OptionType::kText, "KEY=VALUE",
                             "Set one value of the preset's network or "
                             "training. ql-checkpoint(5) lists the keys; null "
                             "removes the preset's value, so that the default holds. If a key is "
                             "given twice, the last value "
                             "holds; --steps, --minutes, --seed and --precision override --set."))),
      make_option("init", OptionType::kFolder, "CHECKPOINT",
                  "Start a new training run from the weights of this checkpoint. The parameters "
                  "must have the same names and shapes; segment and memory lengths may differ."),
      make_flag("resume",
                "Continue from RUN/last or, without it, from the newest other checkpoint of RUN. "
                "The checkpoint records the data and the preset, so --data, --valid and --model "
                "may be left out. If RUN has no checkpoint, start anew; this needs all three."),
      make_flag("force", "Replace the checkpoints and the log of an earlier training run in RUN."),
      make_integer("steps", "Length of the complete training run and its schedule: --set steps=N.",
                   "", 1),
      make_integer("stop-at",
                   "Stop after step N with a checkpoint. The schedule does not change, and "
                   "--resume continues it.",
                   "", 1),
      make_real("minutes", "M",
                "Wall-clock budget in which the schedule is completed: --set minutes=M. Such a "
                "training run cannot be repeated bit for bit.",
                "", 0, HUGE_VAL),
      make_integer("seed", "Seed of the initial weights and of dropout: --set seed=N.", "", 0)};
}

static std::vector<Option> option_table() {
  const Option precision =
      make_choice("precision", "PRECISION",
                  "Precision of matrix products: --set precision=PRECISION. The CPU has float32 "
                  "and, on some processors, bfloat16; auto is the fastest that the device has. "
                  "Weights and optimizer are always float32.",
                  all_names<machine::Precision>());
  const Option eager = make_flag("eager",
                                 "On a GPU, launch each operation of each step by itself, instead "
                                 "of capturing a step once as a CUDA graph and replaying it.");
  return joined(joined(own_options(), machine_options("share the rows of every batch",
                                                      without_default(precision))),
                {eager});
}

ql::ToolTable qltrain_table() {
  return {"qltrain",
          "train a network of the Transformer-QL family on packed data",
          {{"",
            "",
            "",
            option_table(),
            {{"qltrain --data data/train --valid data/valid -m demo-ql -o runs/ql",
              "train as the preset says"},
             {"qltrain -o runs/ql --resume", "continue after an interruption"},
             {"qltrain --data data/train --valid data/valid -m demo-xl -o runs/xl --minutes 5 "
              "--set dropout=0.2",
              "with another dropout, in five minutes"},
             {"qltrain --data data/train --valid data/valid -m simplebooks-2-ql -o runs/big "
              "--device cuda --precision bfloat16",
              "on a GPU"},
             {"mpirun --oversubscribe -n 4 qltrain --data data/train --valid data/valid -m demo-ql "
              "-o runs/ql",
              "with four processes that share every batch"}}}}};
}

void check_qltrain(const Options& options) {
  if (options.flag("resume") && options.flag("force")) {
    throw UsageError("--resume and --force", "contradict each other", "give one of them");
  }
  if (options.flag("resume")) return;
  for (const char* name : {"data", "valid", "model"}) {
    if (!options.has(name)) {
      throw UsageError(fmt::format("--{}", name), "is required without --resume",
                       "see 'qltrain --help'");
    }
  }
}
