// Verifies a packed folder: reads everything and reports every place that has changed since
// packing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "shard/token_stream.h"

namespace ql::shard {

struct Verification {
  std::int64_t tokens = 0, documents = 0;  // as the manifest states
  std::int64_t shards = 0;
  std::int64_t problems = 0;
};

// Calls `problem` with "place: what is wrong; remedy" for each bad place. Continues after every
// problem, except one in the manifest. Does not throw Error: a folder without packed data is
// reported as a problem, too.
//
// `threads` threads decode frames; the findings and their order are the same for any number of
// threads.
//
// The function checks the manifest's text and checksum, every file's size and hash, every seek
// table, every frame with its checksums, every id, the document starts, and, if all these are
// right, the hash of all data.
Verification verify_folder(const std::filesystem::path& folder,
                           const std::function<void(const std::string&)>& problem,
                           const TokensDone& done, int threads = 1);

}  // namespace ql::shard
