// Shared by the sources of base/file.h only.
#pragma once

#include <string>

#include "base/file.h"

namespace ql::internal {

// Added to a temporary name: an old folder that makes room for its successor.
constexpr const char* kMovedAway = ".old";

// Puts the folder `fresh` in the place of `path` by two renames, for file systems that cannot
// exchange names: for an instant there is no `path`, but never half of one. The old folder ends
// under the name `fresh`.
void replace_in_two_steps(const fs::path& fresh, const fs::path& path);

// `path` without a trailing slash; refuses "", ".", ".." and "/", which have no name to replace.
fs::path final_path(const fs::path& path);

// fsync of a file or folder by name; folders that cannot be synced (EINVAL) are passed over.
void sync_path(const fs::path& path, const std::string& where);

// The folder that holds `path`, "." for a plain name.
fs::path folder_of(const fs::path& path);

}  // namespace ql::internal
