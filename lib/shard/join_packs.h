// Joins packed folders without packing anew: the shards are taken over as they are.
#pragma once

#include <cstdint>
#include <filesystem>

#include "shard/joined_data.h"
#include "shard/manifest.h"
#include "shard/token_sink.h"
#include "shard/token_stream.h"

namespace ql::shard {

struct JoinOptions {
  bool force = false;  // as in PackOptions
  int threads = 1;     // that decode
};

struct Joined {
  Manifest manifest;
  std::int64_t linked = 0, copied = 0;  // shards
};

// Makes `folder` of the shards of `data`, each a hard link to the old file where that can be, else
// a copy of it. Every shard is read once: the hash of each file must be the manifest's, and all ids
// are decoded, because data_hash covers them, and a hash of parts does not follow from the hashes
// of the parts. Document starts go through in pieces, and one shard is open at a time, so that
// memory and open files do not grow with the data.
//
// `header` as JoinedData::header() makes it. Throws what reading and PackWriter throw; then nothing
// is left.
Joined join_packs(const JoinedData& data, const std::filesystem::path& folder,
                  const StreamHeader& header, const JoinOptions& options, const TokensDone& done);

}  // namespace ql::shard
