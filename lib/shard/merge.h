// Merges packed folders without packing their tokens again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shard/manifest.h"
#include "shard/multi_reader.h"
#include "shard/pack_writer.h"
#include "shard/token_stream.h"

namespace ql::shard {

// These functions report doubtful parts of a merge: parts in descending order, and parts that occur
// twice.

// Returns the first two names that differ only in their numbers and whose numbers descend, such as
// "part10, part2", or "" when there are none. A shell's sorting by characters causes such an order.
std::string descending_names(const std::vector<std::string>& names);

// Logs a warning when the numbers in the folders' names descend, as in "part10, part2", and when a
// folder occurs twice, even under different names. Logs a note when two folders hold the same data.
void note_part_order(const MultiReader& data);

struct Joined {
  Manifest manifest;
  std::int64_t linked = 0, copied = 0;  // numbers of shards that were linked and copied
};

// Makes `folder` from the shards of `data`. Each shard becomes a hard link to the old file where
// possible, otherwise a copy. Every shard is read once. The hash of its file must be the
// manifest's. All ids are decoded for data_hash, which cannot be computed from the parts' hashes.
// Document starts are read in pieces, and one shard is open at a time, so that memory and open
// files do not grow with the data.
//
// `header` is made by MultiReader::header(). The shards keep their sizes; `options` cannot change
// them. Throws the errors of reading and of NewPack. After an error nothing of the new folder
// remains.
Joined merge_folders(const MultiReader& data, const std::filesystem::path& folder,
                     const StreamHeader& header, const PackOptions& options,
                     const TokensDone& done);

}  // namespace ql::shard
