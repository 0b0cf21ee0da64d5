// May a packed folder be put here?
#pragma once

#include <filesystem>

namespace ql::shard {

// Returns `folder` without a trailing slash. Throws Error when something is there that packing must
// not replace: with `force` anything but a folder that holds only files that qlbin packs,
// manifest.json among them; without it anything but an empty folder. UsageError for a name like "."
// that cannot be given to a new folder.
std::filesystem::path check_pack_target(const std::filesystem::path& folder, bool force);

// The same, and makes the folder's parents.
std::filesystem::path prepare_pack_target(const std::filesystem::path& folder, bool force);

}  // namespace ql::shard
