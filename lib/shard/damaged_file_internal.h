// Messages about a damaged file of a packed folder end with this advice.
#pragma once

namespace ql::shard {

inline constexpr const char* kDamagedFileCure =
    "the file is damaged: fetch or pack the folder again";

}  // namespace ql::shard
