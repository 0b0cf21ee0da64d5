// May a packed folder, or another new one, be put here?
#pragma once

#include <filesystem>

namespace ql::shard {

// Returns `folder` without a trailing slash. Throws Error when something is there that packing must
// not replace: with `force` anything but a folder that holds only files that qlbin packs,
// manifest.json among them; without it anything but an empty folder. UsageError for a name like "."
// that cannot be given to a new folder.
std::filesystem::path check_pack_target(const std::filesystem::path& folder, bool force);

// The same for folders that never replace another: throws Error when anything is there but an empty
// folder.
std::filesystem::path check_empty_target(const std::filesystem::path& folder);

}  // namespace ql::shard
