// Runs a complete training run, from configuration and data to RUN/best, RUN/last and
// RUN/log.jsonl.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "eval/evaluate.h"
#include "machine/process_group.h"
#include "net/model_file.h"
#include "net/network.h"
#include "shard/manifest.h"
#include "shard/multi_reader.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/memory_trial.h"
#include "train/run_folder.h"
#include "train/state.h"
#include "train/streams.h"
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

Settings settings_of(const net::ModelFile& file);
// Returns the keys that both settings have with different values, each with "before" and "after".
Json changed_settings(const Settings& saved, const Settings& now);

// TrainingRun implements train(), step by step. Only trainer.cpp and trainer_start.cpp use it.

// Measures the wall time of this run; total() adds the time of the runs that this run resumes.
class Stopwatch {
 public:
  explicit Stopwatch(double before = 0) : before_(before), start_(Clock::now()) {}
  double run() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double total() const { return before_ + run(); }

 private:
  using Clock = std::chrono::steady_clock;
  double before_;  // seconds of earlier runs
  Clock::time_point start_;
};

class TrainingRun {
 public:
  // Locks the run's folder before it reads anything there.
  TrainingRun(const TrainingTask& task, shard::MultiReader& data, shard::MultiReader& validation);

  // With kResume, restores the checkpoint of find_resume_point() (train/checkpoint.h). Without
  // kResume or without a checkpoint, starts with new weights or those of task.init.
  void start();
  // Logs the first lines: network, lengths, data, schedule, memory.
  void announce() const;
  // Runs the steps, validations and checkpoints of train(). Recovers from a divergence if
  // `divergence` allows this.
  void run();
  const TrainingState& state() const { return state_; }

 private:
  void resume();
  void restore(const std::filesystem::path& checkpoint, Rows rows);
  void begin();
  void open_log();

  void run_steps();
  bool recover(const Divergence& found);
  DivergedRun diverged_run(const Divergence& found) const;
  void roll_back(std::int64_t cursor);
  void leave_out_until(std::int64_t cursor);

  double progress() const;
  bool is_finished();
  void agree();
  void append_to_log(const Json& record);
  bool validation_due(bool finished) const;
  void report_end(bool finished, bool patient) const;
  std::string place_of_stop() const;  // in words; call this after save_unsaved()
  void train_step();
  void add(const StepSums& sums);
  void finish_steps();
  void log_steps();
  eval::Evaluation evaluate(const net::Lengths& lengths);
  void validate();
  bool has_better(double loss) const;
  bool checkpoint_due() const;
  void require_sound();
  void save(const std::filesystem::path& folder);
  void require_same_weights();
  void save_unsaved();
  void save_before_failing();
  Figures figures() const;

  shard::MultiReader& validation_data_;
  Streams streams_;
  RunFolder folder_;
  std::filesystem::path resumed_;         // the checkpoint to continue from; empty: there is none
  std::optional<TrainingMemory> memory_;  // absent on GPUs, and if more is needed than available
  const TrainingTask task_;  // `slices` and `passes` of its config are those of with_slices()
  net::ModelFile description_;
  const std::string unit_;  // unit_of_tokens() of the data
  TrainedNetwork trained_;
  TrainingState state_;
  std::optional<RunLog> log_;
  Progress line_;
  bool unsaved_ = false;  // RUN/last is older than state_
  // The weights after this step are known to be good: they are those of a checkpoint or of the
  // start, or have predicted the validation data or the segment of the next step.
  std::int64_t sound_step_ = 0;
  // A rollback returns to this checkpoint, the last one that this run wrote. Before the first one
  // it is the checkpoint that the run resumed from, if the number of rows has not changed. Empty:
  // there is none yet.
  std::filesystem::path newest_;
  // RUN/last was last written after this step, or the run resumed from a checkpoint of this step.
  std::int64_t kept_step_ = 0;
  Settings saved_settings_;  // of the last checkpoint that this run wrote, or resumed from

  Stopwatch watch_;
  // agree() gives elapsed_ and stop_signal_ the same values in all processes, so all decide alike.
  double elapsed_ = 0;            // seconds of the complete training, by the first process's clock
  int stop_signal_ = 0;           // the signal that requested a stop, or 0
  double last_at_ = 0;            // elapsed_ when RUN/last was written, or this run began
  double learning_rate_ = 0;      // of the last step
  double step_seconds_ = 0;       // of this run's steps since the last record of the log
  std::int64_t timed_steps_ = 0;  // the number of those steps
  std::int64_t run_steps_ = 0, validations_ = 0;  // of this run
  double validation_seconds_ = 0;                 // the time of this run's validations
};

}  // namespace ql::train
