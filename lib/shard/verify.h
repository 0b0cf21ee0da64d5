// Reads everything in a packed folder and names every place that is not as it was packed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "shard/token_sink.h"

namespace ql::shard {

struct Verification {
  std::int64_t tokens = 0, documents = 0;  // as the manifest says
  std::int64_t shards = 0;
  std::int64_t problems = 0;
};

// Calls `problem` with "place: what is wrong; cure" for each bad place, and goes on where that
// makes sense (it cannot behind a damaged manifest). Throws no Error: no packed folder is a
// problem, too.
//
// Threads decode frames; the findings and their order are the same for any number.
//
// Checked: the manifest's text and checksum, every file's size and hash, every seek table, every
// frame with its checksums, every id, the document starts, and the hash of the data as a whole.
Verification verify_folder(const std::filesystem::path& folder,
                           const std::function<void(const std::string&)>& problem,
                           const TokensDone& done, int threads = 1);

}  // namespace ql::shard
