// Writes and reads checkpoint folders, and finds the one to resume from.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "net/model_file.h"
#include "train/state.h"
#include "train/training_step.h"

namespace ql::train {

// A checkpoint folder has model.json, model.safetensors, optimizer.safetensors, memory.safetensors,
// state.json, and vocabulary.json if the data has a vocabulary. ql-checkpoint(5) describes every
// key. A folder is complete before it gets its name.

// Returns the network's memory for all rows of the batch, for a checkpoint after `steps` steps.
// Throws Diverged if a weight, moment or memory is not finite: such a checkpoint is useless. When
// the first of several processes writes a checkpoint, the others have to call this, because the
// memory is gathered from all of them.
nn::Memory finite_memory(const TrainedNetwork& trained, std::int64_t steps);

// Creates or replaces `folder`. Throws Diverged as finite_memory() does, and then leaves the folder
// unchanged. Calls `check` before the first file is written and before the folder gets its name; an
// error of `check` leaves the folder unchanged, too.
void write_checkpoint(
    const std::filesystem::path& folder, const net::ModelFile& description,
    const TrainedNetwork& trained, const TrainingState& state,
    const std::function<void()>& check = [] {});

// Reads only state.json, and verifies its checksum. Throws FormatError, SystemError or ConfigError.
TrainingState read_state(const std::filesystem::path& folder);

// Returns true if an error during reading means that a checkpoint is damaged or absent. A version
// that this program does not know is not damage, and neither is a file without read permission.
bool means_damage(const Error& error);
// Checks every file against state.json. Returns a message about a damaged or missing file; empty if
// there is none. Throws the errors that do not mean damage.
std::string damage(const std::filesystem::path& folder);
// If there is damage, throws FormatError with the message of damage() and advice.
void verify_checkpoint(const std::filesystem::path& folder);

// If RUN/best is missing or damaged, makes it again from `checkpoint` or RUN/step-..., whichever is
// complete and of step `step`. If neither is, logs a warning.
void restore_best(const std::filesystem::path& run, std::int64_t step,
                  const std::filesystem::path& checkpoint);

// kSame: the batch has as many rows as the checkpoint's batch; kOther: it does not.
enum class Rows { kSame, kOther };

// Calls verify_checkpoint(), then restores weights, moments and, with kSame, the memory. After an
// exception `trained` must not be used.
TrainingState read_checkpoint(const std::filesystem::path& folder, TrainedNetwork& trained,
                              Rows rows = Rows::kSame);

// Returns the checkpoint of `run` from which a stopped training run continues: RUN/last if it is
// complete, otherwise the newest complete one of the others; empty if `run` has no checkpoint at
// all. Skips damaged ones and logs a warning for each, with the number of lost steps if it is
// known. Throws FormatError if all are damaged, and the errors of damage().
std::filesystem::path find_resume_point(const std::filesystem::path& run);

}  // namespace ql::train
