// Keeps checkpoints in RUN beside RUN/last and RUN/best, as RUN/step-00001000 and so on. Their
// files are those of RUN/last under a second name (hard links), so that they cost no time and,
// until RUN/last moves on, no room; where the file system has no links, they are copies.
//
// A new one is complete before an old one goes, and one that goes loses its name first. So a folder
// of such a name is a whole checkpoint, whenever the process may be killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace ql::train {

// The checkpoints that stay.
struct Retention {
  std::int64_t last = 1;   // RUN/last and last - 1 before it
  std::int64_t every = 0;  // those of steps that this divides, for ever; 0: none
};

// RUN/step-00001000
std::filesystem::path step_folder(const std::filesystem::path& run, std::int64_t step);

// Returns the steps of a checkpoint from its state.json; absent when that is damaged or of another
// version, or cannot be read.
std::optional<std::int64_t> step_of(const std::filesystem::path& checkpoint);

// Lists the steps of the step folders in `run`, ascending; none when there is no `run`.
std::vector<std::int64_t> kept_steps(const std::filesystem::path& run);

// Lists all checkpoints: RUN/last, then the others and RUN/best, those of more steps first.
std::vector<std::filesystem::path> newest_checkpoints(const std::filesystem::path& run);

// Renames RUN/last to RUN/last.damaged, or last.damaged-2 and so on, so that its successor does not
// replace it, and returns the new name. Throws SystemError.
std::filesystem::path set_last_aside(const std::filesystem::path& run);

// To be called after RUN/last was written at `step` steps. Makes its second name if it is to stay,
// and removes checkpoints that are no longer to stay. Those of more steps, which another course of
// this training left, are not touched. Throws SystemError.
void retain(const std::filesystem::path& run, std::int64_t step, const Retention& retention);

// Removes a checkpoint, if it is there, after it took its name away. Throws SystemError.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// Removes RUN/step-... of all steps.
void remove_kept(const std::filesystem::path& run);

// The caller of the next two holds the lock on RUN and calls them in this order. They mend what a
// killed process left.
//
// Gives a checkpoint its name back that had to make room for a successor that did not come. (Where
// the file system can exchange names, there is no such moment.)
void put_back_replaced(const std::filesystem::path& run);
// Removes the remains of making, replacing or removing RUN/last, RUN/best and RUN/step-...
void remove_leftovers(const std::filesystem::path& run);

}  // namespace ql::train
