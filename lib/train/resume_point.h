// Finds the checkpoint from which a stopped training goes on.
#pragma once

#include <filesystem>

namespace ql::train {

// Returns the newest checkpoint of `run` that is whole; empty when there is no checkpoint at all. A
// warning names each one that is passed over because it is damaged, and says how many steps that
// costs. Throws FormatError when all are damaged, and as damage() does (train/checkpoint.h).
std::filesystem::path find_resume_point(const std::filesystem::path& run);

}  // namespace ql::train
