// Manages RUN, the folder that a training run writes to: its lock and its checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace ql::train {

// RunFolder opens and locks RUN, which holds best/, last/, the checkpoints step-..., log.jsonl and
// a TensorBoard event file.

enum class Start {
  kNew,     // refuse a folder that already has a checkpoint
  kResume,  // continue from last/, or from the newest complete checkpoint
  kForce,   // remove the files of an earlier training run
};

// Creates the folder and holds a lock on it, so that no second training run writes there.
class RunFolder {
 public:
  // Throws Error if another process holds the lock; if the folder itself is a data folder or a
  // checkpoint; for kNew, if it contains a checkpoint; and, except for kForce, if RUN/last or
  // RUN/best is a symbolic link, which the next checkpoint would replace. Finishes or undoes what a
  // killed run was doing to a checkpoint: writing, replacing or removing it. With `reads_only`,
  // which is for all processes of a group except the first, nothing is created, locked, removed or
  // refused.
  RunFolder(std::filesystem::path path, Start start, bool reads_only = false);

  std::filesystem::path best() const { return path_ / "best"; }
  std::filesystem::path last() const { return path_ / "last"; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  bool has_checkpoint() const;
  // Throws Error if the folder was moved, removed or replaced since it was opened: RUN/.lock has
  // another text then. What has the folder's name now may belong to another training run, which has
  // a lock of its own. Checks nothing with `reads_only`, or if the text could not be written.
  void require_in_place() const;
  const std::filesystem::path& path() const { return path_; }
  // Removes checkpoints and log of an earlier training run. The event file stays for RunLog, which
  // replaces it by a file with a later name.
  void clear();

 private:
  void lock();
  void write_name();
  std::filesystem::path path_;
  Descriptor lock_;
  std::string name_in_lock_;  // what RUN/.lock has while this run holds it; empty: nothing is known
};

// retain() keeps checkpoints in RUN in addition to RUN/last and RUN/best, as RUN/step-00001000 and
// so on. Their files are hard links to the files of RUN/last, so they cost no time, and no space
// until RUN/last is replaced. If the file system has no hard links, they are copies.
//
// A new checkpoint is complete before an old one is removed, and an old one is renamed before its
// files are removed. So a folder named step-... is always a complete checkpoint, even after the
// process was killed.

// Selects the checkpoints that are kept.
struct Retention {
  std::int64_t last = 1;  // the number of newest checkpoints to keep, including RUN/last
  // A checkpoint after a multiple of `every` steps is kept forever; 0: none is.
  std::int64_t every = 0;
};

// Returns RUN/step-00001000.
std::filesystem::path step_folder(const std::filesystem::path& run, std::int64_t step);

// Returns the number of steps from a checkpoint's state.json; absent if state.json is damaged, of
// another version, or unreadable.
std::optional<std::int64_t> step_of(const std::filesystem::path& checkpoint);

// Lists the steps of the folders step-... in `run`, ascending; none if `run` does not exist.
std::vector<std::int64_t> kept_steps(const std::filesystem::path& run);

// Lists all checkpoints. RUN/last is the first. The others, RUN/best and the folders RUN/step-...,
// follow by descending number of steps. A run that was killed may have moved a checkpoint away to
// replace it. If the name is still free, the list has the checkpoint by its hidden name.
std::vector<std::filesystem::path> newest_checkpoints(const std::filesystem::path& run);

// Renames a file or folder of RUN, so that its successor does not replace it: with the ending
// ".damaged" RUN/last becomes RUN/last.damaged, or last.damaged-2 and so on. Returns the new name.
// Throws SystemError.
std::filesystem::path set_aside(const std::filesystem::path& path, const std::string& ending);

// Makes the checkpoint `to` with the files of `from`: hard links, or else copies. Throws
// SystemError.
void link_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to);

// Call this when RUN/last has been written after step `step`. Gives this checkpoint a folder
// RUN/step-... if it is to be kept, and removes such folders that are no longer kept. `previous` is
// the step of the previous call or, in the first call, of the checkpoint that the run resumed from
// (a new run: 0). An earlier attempt of this training run wrote the folders of steps between
// `previous` and `step`, and those after `step`. The former are removed, because they may be
// damaged, and would take the places of this attempt's checkpoints. The latter are not touched.
// Throws SystemError.
void retain(const std::filesystem::path& run, std::int64_t step, const Retention& retention,
            std::int64_t previous);

}  // namespace ql::train
