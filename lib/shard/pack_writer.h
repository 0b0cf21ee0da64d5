// Packs tokens into a folder of shards with a manifest, see ql-manifest(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "shard/manifest.h"
#include "shard/token_stream.h"

namespace ql::shard {

struct PackOptions {
  std::int64_t shard_tokens = 64'000'000;  // a shard's last frame may be shorter than the others
  std::int64_t frame_tokens = 65'536;
  std::optional<int> level;  // see FrameCompressor; absent: default_level()
  bool force = false;        // replace an existing packed folder
  int threads = 1;           // for compression; the files are the same for any number
};

// Returns the level for a vocabulary. Words and pieces of words rarely form repetitions: a search
// for them would take three times as long and save 6 to 8 per cent, so vocabularies of more than
// 1,024 entries get level 0. Characters and bytes repeat, so they get level 1.
int default_level(std::int64_t vocabulary_size);

// Everything is written under a temporary name next to the folder; finish() gives it the final name
// in one step. Without finish() nothing remains, and an existing folder stays unchanged.
class PackWriter : public TokenSink {
 public:
  // header.provenance becomes the manifest's. Throws UsageError for sizes that do not fit the
  // format, and Error when the folder exists: always for anything except a packed folder, and for a
  // packed folder without options.force.
  PackWriter(const std::filesystem::path& folder, const StreamHeader& header,
             const PackOptions& options);
  ~PackWriter() override;
  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  void finish(const std::optional<TextCounts>& counts) override;

  // Adds keys to the manifest's own (ql-manifest(5)). Call it before finish().
  void keep_unknown(const Json& unknown);
  // Call it after finish().
  const Manifest& manifest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ql::shard
