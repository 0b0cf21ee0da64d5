// Writes and reads checkpoint folders, and finds the one to resume from.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"
#include "net/model_file.h"
#include "train/state.h"
#include "train/training_step.h"

namespace ql::train {

// Writes and reads checkpoint folders: model.json, model.safetensors, optimizer.safetensors,
// memory.safetensors, vocabulary.json, state.json. ql-checkpoint(5) has every key. A folder is
// complete or absent.

// Returns the memory of all rows, for a checkpoint after `steps` steps. Throws Diverged if a
// weight, moment or memory is not finite: such a checkpoint is useless. When the first of several
// processes writes a checkpoint, the others have to call this.
nn::Memory finite_memory(const TrainedNetwork& trained, std::int64_t steps);

// Holds the texts of a checkpoint that are the same during all of a training. They are made at its
// beginning: the JSON tree that the first one is made from needs memory to be destroyed, and ends
// the process if there is none.
struct CheckpointTexts {
  CheckpointTexts(const net::ModelFile& description);  // NOLINT(google-explicit-constructor)
  std::string model, vocabulary;  // model.json and vocabulary.json; the second may be empty
};

// Replaces `folder`. Throws Diverged as finite_memory() does, and then leaves the folder unchanged.
void write_checkpoint(const std::filesystem::path& folder, const CheckpointTexts& texts,
                      const TrainedNetwork& trained, const TrainingState& state);

// Reads only state.json, and verifies its checksum. Throws FormatError with the reason.
TrainingState read_state(const std::filesystem::path& folder);

// Returns true if an error of reading means that a checkpoint is damaged or absent. A version that
// this program does not know is not damage, and neither is a file without read permission.
bool means_damage(const Error& error);
// Compares every file with state.json and returns which one is damaged or missing; empty if none
// is. Throws the errors that do not mean damage.
std::string damage(const std::filesystem::path& folder);
// Throws FormatError with damage(), if there is any, and advice.
void verify_checkpoint(const std::filesystem::path& folder);

// Selects whether the rows of the batch equal those of the checkpoint.
enum class Rows { kSame, kOther };

// Restores weights, moments and, for the same rows, memory, after verify_checkpoint(). After an
// exception `trained` must not be used.
TrainingState read_checkpoint(const std::filesystem::path& folder, TrainedNetwork& trained,
                              Rows rows = Rows::kSame);

// Finds the checkpoint from which a stopped training continues.

// Returns the newest complete checkpoint of `run`; empty if there is no checkpoint at all. A
// warning names each one that is skipped because it is damaged, with the number of steps lost.
// Throws FormatError if all are damaged, and as damage() does.
std::filesystem::path find_resume_point(const std::filesystem::path& run);

}  // namespace ql::train
