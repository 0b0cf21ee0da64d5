// Checkpoint folders: model.json, model.safetensors, optimizer.safetensors, memory.safetensors,
// state.json. ql-checkpoint(5) has every key. A folder is whole or absent.
#pragma once

#include <filesystem>
#include <string>

#include "net/model_file.h"
#include "train/state.h"
#include "train/trainee.h"

namespace ql::train {

// Replaces `folder`.
void write_checkpoint(const std::filesystem::path& folder, const net::ModelFile& description,
                      const Trainee& learner, const TrainingState& state);

// state.json alone, its checksum verified. Throws FormatError with the reason.
TrainingState read_state(const std::filesystem::path& folder);

// Compares every file with state.json. Throws FormatError with file and reason; a file that is
// missing is a SystemError.
void verify_checkpoint(const std::filesystem::path& folder);

// After verify_checkpoint, restores weights, moments and memory. On an exception `learner` is of no
// use.
TrainingState read_checkpoint(const std::filesystem::path& folder, Trainee& learner);

}  // namespace ql::train
