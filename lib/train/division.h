// Divides the batch of a training among threads, and by the available memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "train/memory_trial.h"
#include "train/trainer.h"

namespace ql::train {

// Returns the task with numbers of slices (micro-batches) and passes (accumulation steps of each).
// On the CPU `memory` gets the bytes that the run will need, unless they are more than there are.
// On a GPU, which computes all rows at once, nothing changes.
//
// A resume takes the numbers of its checkpoint, so that gradients are added up in the same order as
// before, unless the command line names them. Otherwise this process chooses the numbers for its
// machine. In a group, all processes take the slices of the first process, and the most passes that
// one of them needs with these slices.
TrainingTask with_division(TrainingTask task, const std::filesystem::path& checkpoint,
                           std::int64_t frame_bytes, std::int64_t validation_tokens,
                           std::optional<TrainingMemory>& memory);

// Logs "2 slices of up to 64 rows, each in 1 pass" or "each in up to 3 passes", and the measured
// memory.
void log_division(const TrainingTask& task, const std::optional<TrainingMemory>& memory);

}  // namespace ql::train
