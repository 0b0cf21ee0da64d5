// Runs a whole training, from configuration and data to RUN/best, RUN/last and RUN/log.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "machine/process_group.h"
#include "net/network.h"
#include "shard/joined_data.h"
#include "train/compute_device.h"
#include "train/config.h"
#include "train/run_folder.h"
#include "train/state.h"

namespace ql::train {

struct TrainingTask {
  std::filesystem::path run;
  Start start = Start::kNew;
  net::Network network;  // vocab_size as the data has it
  TrainingConfig config;
  std::vector<std::string> named;  // the keys of config that the command line gives
  std::filesystem::path init;      // checkpoint whose weights to start from; empty: new weights
  std::int64_t stop_at = 0;  // stop with a checkpoint after this step; 0: at the schedule's end
  Json provenance;
  ComputeDevice compute;
  machine::ProcessGroup* group =
      nullptr;          // of the processes that train together; must outlive train()
  std::string machine;  // threads and BLAS; reported before the other first lines
};

// Trains until the schedule's end, stop_at, or a signal. The state at the end is in RUN/last.
//
// Throws ConfigError when the lengths do not fit, Error when the data does not (vocabulary of
// `validation` or of `init` differs, too few tokens), and when a resume differs from what was
// trained; Diverged when a step diverges and the configuration does not have it mended;
// Interrupted, after a checkpoint, on a signal of base/signals.h.
//
// Processes of a group call it with the same task. All of them read the run's folder, and only the
// first one writes there. They stop together, whichever of them got a signal.
TrainingState train(const TrainingTask& task, shard::JoinedData& data,
                    shard::JoinedData& validation);

}  // namespace ql::train
