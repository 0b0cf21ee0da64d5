// Implements train(), step by step. Only the files trainer*.cpp use this class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/stopwatch.h"
#include "eval/evaluate.h"
#include "train/checkpoint.h"
#include "train/memory_trial.h"
#include "train/streams.h"
#include "train/trainer.h"

namespace ql::train {

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

  Stopwatch watch_, training_time_;  // of this run; of the complete training
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
