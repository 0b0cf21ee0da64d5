// Writes and reads checkpoint folders: model.json, model.safetensors, optimizer.safetensors,
// memory.safetensors, vocabulary.json, state.json. ql-checkpoint(5) has every key. A folder is
// whole or absent.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"
#include "net/model_file.h"
#include "train/state.h"
#include "train/trained_network.h"

namespace ql::train {

// Returns the memory of all rows, for a checkpoint after `steps` steps. Throws Diverged when a
// weight, moment or memory is not finite: such a checkpoint is of no use to anybody. When the first
// of several processes writes a checkpoint, the others have to call this.
nn::Memory finite_memory(const TrainedNetwork& trained, std::int64_t steps);

// The texts of a checkpoint that are the same in all of a training. They are made where it begins:
// the tree of JSON that the first is made from needs memory to be destroyed, and ends the process
// when there is none.
struct CheckpointTexts {
  CheckpointTexts(const net::ModelFile& description);  // NOLINT(google-explicit-constructor)
  std::string model, vocabulary;  // model.json and vocabulary.json; the second may be empty
};

// Replaces `folder`. Throws Diverged as finite_memory() does, and leaves the folder as it is then.
void write_checkpoint(const std::filesystem::path& folder, const CheckpointTexts& texts,
                      const TrainedNetwork& trained, const TrainingState& state);

// state.json alone, its checksum verified. Throws FormatError with the reason.
TrainingState read_state(const std::filesystem::path& folder);

// Tells whether an error of reading says that a checkpoint is damaged or absent. A version that
// this program does not know is no damage, and neither is a file that it may not read.
bool tells_damage(const Error& error);
// Compares every file with state.json and says which one is damaged or missing; empty when none is.
// Throws the errors that do not tell of damage.
std::string damage(const std::filesystem::path& folder);
// Throws FormatError with damage(), if there is any, and advice.
void verify_checkpoint(const std::filesystem::path& folder);

// Tells whether the rows of the batch are those of the checkpoint.
enum class Rows { kSame, kOther };

// After verify_checkpoint, restores weights, moments and, for the same rows, memory. On an
// exception `trained` is of no use.
TrainingState read_checkpoint(const std::filesystem::path& folder, TrainedNetwork& trained,
                              Rows rows = Rows::kSame);

}  // namespace ql::train
