// Notes on the parts of a merge: their order, and parts that come twice.
#pragma once

#include <string>
#include <vector>

#include "shard/joined_data.h"

namespace ql::shard {

// Returns "part10, part2" for the first two names that are the same except for their numbers, and
// whose numbers descend; "" when there are none. That is how a shell sorts names.
std::string descending_names(const std::vector<std::string>& names);

// Logs a warning when numbered names descend, or when a folder comes twice, under whatever name;
// and a note when two folders hold the same data.
void note_part_order(const JoinedData& data);

}  // namespace ql::shard
