// Runs a complete training run, from configuration and data to RUN/best, RUN/last and
// RUN/log.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "machine/process_group.h"
#include "net/model_file.h"
#include "shard/multi_reader.h"
#include "train/config.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/state.h"
#include "train/training_step.h"

namespace ql::train {

// TrainingTask is the input of a training run.

struct TrainingTask {
  std::filesystem::path run;
  Start start = Start::kNew;
  net::Network network;  // has the vocab_size of the data
  TrainingConfig config;
  std::vector<std::string> named;  // the keys of config that the command line gives
  std::filesystem::path init;      // checkpoint that gives the initial weights; empty: new weights
  std::int64_t stop_at = 0;  // stop with a checkpoint after this step; 0: at the schedule's end
  Json provenance;
  ComputeDevice compute;
  // Its processes train together. Never null; it must outlive train().
  machine::ProcessGroup* group = &machine::ProcessGroup::single();
  std::string machine;  // threads and BLAS, for announce()

  // Returns true for the process that writes to the run's folder.
  bool is_first() const { return group->is_first(); }
};

// Trains until the schedule ends, step stop_at is done, `patience` is used up, or a signal arrives.
// The state at the end is in RUN/last.
//
// Throws ConfigError if the lengths do not fit, or if the run is on a GPU and `divergence` is not
// stop. Throws Error if the data does not fit: the vocabulary of `validation`, of `init` or of the
// checkpoint of a resume differs, or there are too few tokens. Also throws Error if a resume
// differs from the original training run. Throws Diverged if the run diverges and `divergence` does
// not recover from this. Throws Interrupted on a signal of base/process.h, after a checkpoint if a
// step has run.
//
// All processes of a group call this with the same task. All of them read the run's folder, and
// only the first one writes there. They stop together, whichever of them got a signal.
TrainingState train(const TrainingTask& task, shard::MultiReader& data,
                    shard::MultiReader& validation);

// These check that network, data and checkpoint fit together (train/compatible.cpp).

// Returns `network` with vocab_size from the data, and with softmax cutoffs from the data if they
// are "auto". Throws Error if `network` (of the preset `where`) has a vocab_size that differs from
// the data's and is not 0, or if its other keys conflict with the data's vocab_size.
net::Network with_vocabulary(const net::Network& network, const std::string& where,
                             shard::MultiReader& data);

// Throws Error if keys of network or training, or the data, differ between the checkpoint `where`
// and this run. The error lists all differences. Keys that may change (train/config.h) are ignored,
// those with kMayChangeByName only if they are in `named`.
void require_same_training(const std::string& where, const net::ModelFile& saved,
                           const TrainingState& saved_state, const net::ModelFile& now,
                           const DataIdentity& data, const DataIdentity& validation,
                           const std::vector<std::string>& named);

// Throws Error for a folder whose name a checkpoint cannot record.
DataIdentity identity_of(const shard::MultiReader& data);

// Throws Error unless task, data and validation data fit together, and are the same in all
// processes of the group. Returns `validation`.
shard::MultiReader& check_task(const TrainingTask& task, shard::MultiReader& data,
                               shard::MultiReader& validation);

Settings settings_of(const net::ModelFile& file);
// Returns the keys that both settings have with different values, each with "before" and "after".
Json changed_settings(const Settings& saved, const Settings& now);

}  // namespace ql::train
