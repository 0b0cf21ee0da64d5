// Manages RUN, the folder that a training writes to: its lock, its log, and the checkpoints that it
// keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace ql::train {

// Opens and locks RUN. It holds best/, last/, the checkpoints step-..., log.jsonl and a TensorBoard
// event file.

enum class Start {
  kNew,     // refuse a folder that already has a checkpoint
  kResume,  // continue from last/, or from the newest complete checkpoint
  kForce,   // remove the files of an earlier training
};

// Creates the folder and holds a lock on it, so that no second training writes there.
class RunFolder {
 public:
  // Throws Error if another process holds the lock, and for kNew if there is a checkpoint. Repairs
  // checkpoints that a killed training was writing or removing. With `reads_only` nothing is
  // created, locked, removed or refused: this is for the other processes of a group.
  RunFolder(std::filesystem::path path, Start start, bool reads_only = false);

  std::filesystem::path best() const { return path_ / "best"; }
  std::filesystem::path last() const { return path_ / "last"; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  bool has_checkpoint() const;
  const std::filesystem::path& path() const { return path_; }
  // Removes checkpoints and log of an earlier training, and the temporary files of a killed one.
  // The event file stays for RunLog, which replaces it by one of a later name.
  void clear();

 private:
  std::filesystem::path path_;
  Descriptor lock_;
};

// Keeps checkpoints in RUN in addition to RUN/last and RUN/best, as RUN/step-00001000 and so on.
// Their files are those of RUN/last under a second name (hard links), so that they cost no time
// and, until RUN/last is replaced, no space; if the file system has no links, they are copies.
//
// A new one is complete before an old one is removed, and a removed one loses its name first. So a
// folder of such a name is a complete checkpoint, whenever the process may be killed.

// Says which checkpoints are kept.
struct Retention {
  std::int64_t last = 1;   // RUN/last and last - 1 before it
  std::int64_t every = 0;  // those of steps that this divides, forever; 0: none
};

// Returns RUN/step-00001000.
std::filesystem::path step_folder(const std::filesystem::path& run, std::int64_t step);

// Returns the steps of a checkpoint from its state.json; absent if that is damaged or of another
// version, or cannot be read.
std::optional<std::int64_t> step_of(const std::filesystem::path& checkpoint);

// Lists the steps of the step folders in `run`, ascending; none if there is no `run`.
std::vector<std::int64_t> kept_steps(const std::filesystem::path& run);

// Lists all checkpoints: RUN/last, then the others and RUN/best, those of more steps first.
std::vector<std::filesystem::path> newest_checkpoints(const std::filesystem::path& run);

// Renames RUN/last to RUN/last.damaged, or last.damaged-2 and so on, so that its successor does not
// replace it, and returns the new name. Throws SystemError.
std::filesystem::path set_last_aside(const std::filesystem::path& run);

// Call this after RUN/last was written at `step` steps. If this checkpoint is to be kept, it gets a
// second name, and checkpoints that are no longer kept are removed. Checkpoints of more steps,
// which an earlier attempt of this training wrote, are not touched. Throws SystemError.
void retain(const std::filesystem::path& run, std::int64_t step, const Retention& retention);

// The reports of a training: RUN/log.jsonl and the progress line.

// Writes RUN/log.jsonl, one JSON object a line and only complete lines. Also writes a TensorBoard
// event file with the same course of the training.
class RunLog {
 public:
  // Opens for appending. First cuts off an unfinished last line and the records that are newer than
  // the checkpoint a resume starts from: "train" records after `step`, "validation" records after
  // `validation_step`, "divergence" records after the first `divergences`, "resume" records of
  // `step` itself, which led to no checkpoint. A new run has step 0. The event file is written
  // again from the remaining lines. `elapsed`, the seconds of training so far, is the present time
  // on its clock.
  RunLog(const std::filesystem::path& path, std::int64_t step, std::int64_t validation_step,
         double elapsed = 0, std::int64_t divergences = 0);

  // Writes the complete line at once. If the disk is full, the file keeps its earlier length and a
  // SystemError is thrown.
  void append(const Json& record);
  // Flushes the log to the disk. It must come before a checkpoint that relies on the log.
  void sync();

 private:
  double began_;  // seconds since 1970 at which the training would have begun without pauses
  std::optional<AppendFile> lines_, events_;
};

// Has the figures of the progress line and of a "train" record of the log.
struct Figures {
  std::int64_t step = 0;     // finished steps
  double loss = 0;           // mean since the last record, nats per token
  double learning_rate = 0;  // of the last step
  double gradient_norm = 0;  // mean since the last record, before clipping
  double tokens_per_second = 0;
  double seconds_left = -1;  // until the schedule's end; negative: not known yet
};

// Makes the words of the progress line. Returns "14h20m left", "1,020 tokens/s", "loss 4.812",
// "perplexity 123.0", "step 1,200 of 60,000", "learning rate 2.4e-04", "gradient 0.35". The most
// important ones come first, because a narrow terminal cuts off the end.
std::vector<std::string> figures_words(const Figures& figures, std::int64_t steps);

}  // namespace ql::train
