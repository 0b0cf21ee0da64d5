// What to do about a damaged file of a packed folder.
#pragma once

namespace ql::shard {

inline constexpr const char* kDamagedFileCure =
    "the file is damaged: fetch or pack the folder again";

}  // namespace ql::shard
