// Shared by the sources of base/file.h and base/random_access_file.h only.
#pragma once

#include <string>

#include "base/file.h"

namespace ql::internal {

// The temporary name of `path` for this process, as in base/temporary_name.h. Removes what dead
// processes of this machine left there for the same name, and what a former process with our number
// left. `path` has to be in final_path()'s form. Throws Error when there is no such folder.
fs::path claim_temporary(const fs::path& path);

// Added to a temporary name: an old folder that makes room for its successor.
constexpr const char* kMovedAway = ".old";

// Puts the folder `fresh` in the place of `path` by two renames, for file systems that cannot
// exchange names: for an instant there is no `path`, but never half of one. The old folder ends
// under the name `fresh`.
void replace_in_two_steps(const fs::path& fresh, const fs::path& path);

// Ends the claim; removes the file or folder of that name if it is still there. Never throws.
void release_temporary(const fs::path& temporary) noexcept;

// `path` without a trailing slash; refuses "", ".", ".." and "/", which have no name to replace.
fs::path final_path(const fs::path& path);

// Writes everything or throws SystemError(where, "write", errno).
void write_all(int descriptor, const void* data, std::size_t size, const std::string& where);

// fsync of a file or folder by name; folders that cannot be synced (EINVAL) are passed over.
void sync_path(const fs::path& path, const std::string& where);

// The folder that holds `path`, "." for a plain name.
fs::path folder_of(const fs::path& path);

}  // namespace ql::internal
