// The training behind train/trainer.h, step by step. Used by its sources only.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/progress.h"
#include "eval/evaluation.h"
#include "net/model_file.h"
#include "train/checkpoint.h"
#include "train/estimate.h"
#include "train/report.h"
#include "train/run_log.h"
#include "train/streams.h"
#include "train/trained_network.h"
#include "train/trainer.h"

namespace ql::train {

// Wall time of a training over all its runs.
class Stopwatch {
 public:
  explicit Stopwatch(double before = 0) : before_(before), start_(Clock::now()) {}
  double before() const { return before_; }  // of earlier runs
  double run() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double total() const { return before_ + run(); }

 private:
  using Clock = std::chrono::steady_clock;
  double before_;
  Clock::time_point start_;
};

class TrainingRun {
 public:
  // Locks the run's folder before anything in it is looked at.
  TrainingRun(const TrainingTask& task, shard::JoinedData& data, shard::JoinedData& validation);

  // Restores the newest whole checkpoint (train/resume_point.h), or begins anew with fresh weights
  // or those of task.init.
  void start();
  // Prints the first lines: network, lengths, data, schedule, memory.
  void announce() const;
  // Trains until the schedule's end, stop_at, a signal, or a divergence that cannot be mended.
  void run();
  const TrainingState& state() const { return state_; }

 private:
  void resume();
  void restore(const std::filesystem::path& checkpoint, Rows rows);
  void begin();
  void open_log();

  void run_steps();
  bool recover(const Divergence& found);
  void roll_back(std::int64_t cursor);
  void leave_out_until(std::int64_t cursor);

  double progress() const;
  bool is_first() const { return task_.group == nullptr || task_.group->is_first(); }
  void agree();
  void append_to_log(const Json& record);
  bool validation_due(bool finished) const;
  bool out_of_patience() const;
  void tell_end(bool finished, bool patient) const;
  std::string place_of_stop() const;  // in words, after the last checkpoint
  void train_step();
  void add(const StepResult& result);
  void finish_steps();
  void log_steps();
  eval::Evaluation evaluate(const net::Lengths& lengths);
  void validate();
  bool has_better(double loss) const;
  bool checkpoint_due() const;
  void save(const std::filesystem::path& folder);
  void require_same_weights();
  void save_unsaved();
  void save_before_failing();
  Figures figures() const;

  shard::JoinedData& validation_data_;
  Streams streams_;
  RunFolder folder_;
  std::filesystem::path resumed_;  // the checkpoint to go on from; empty: there is none
  Json changed_ = Json::object();  // the settings that this resume has changed
  std::int64_t resumed_step_ = 0;
  const TrainingTask task_;  // its open slices and passes are chosen
  MemoryEstimate memory_;    // estimated before any of it is taken
  net::ModelFile description_;
  CheckpointTexts texts_;  // made from it
  std::unique_ptr<TrainedNetwork> trained_;
  TrainingState state_;
  std::optional<RunLog> log_;
  Progress line_;
  bool unsaved_ = false;  // RUN/last is older than state_
  // The checkpoint that state_ was last saved in or stems from; empty: none yet.
  std::filesystem::path newest_;

  Stopwatch watch_;
  // All processes go by the values of the last agree():
  double elapsed_ = 0;            // seconds of the whole training, by the first one's clock
  int stop_signal_ = 0;           // the signal that asked one of them to stop, or 0
  double last_at_ = 0;            // elapsed_ when RUN/last was written, or this run began
  double learning_rate_ = 0;      // of the last step
  double step_seconds_ = 0;       // of this run's steps since the last record of the log
  std::int64_t timed_steps_ = 0;  // the steps that took them
  std::int64_t run_steps_ = 0, validations_ = 0;  // of this run
  double validation_seconds_ = 0;                 // these took
};

}  // namespace ql::train
