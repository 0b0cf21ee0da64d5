// Packs tokens into a folder of shards with a manifest, see ql-manifest(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "shard/manifest.h"
#include "shard/token_sink.h"
#include "shard/token_stream.h"

namespace ql::shard {

struct PackOptions {
  std::int64_t shard_tokens = 64'000'000;  // a shard's last frame may be shorter than the others
  std::int64_t frame_tokens = 65'536;
  std::optional<int> level;  // of FrameCompressor; absent: usual_level()
  bool force = false;        // replace a folder that was packed before
  int threads = 1;           // that compress; the files are the same for any number
};

// Words and pieces of words hardly repeat in runs: to search for those would take three times as
// long and save 6 to 8 per cent, hence level 0 for vocabularies of more than 1,024 entries.
// Characters and bytes repeat, hence level 1.
int usual_level(std::int64_t vocabulary_size);

// Everything is written under a temporary name beside the folder; finish() gives it the final name
// in one step. Without finish() nothing is left, and an existing folder stays as it was.
class PackWriter : public TokenSink {
 public:
  // header.provenance becomes the manifest's. Throws UsageError for sizes that do not fit the
  // format, and Error when the folder exists: always when it is anything but a packed folder, else
  // without options.force.
  PackWriter(const std::filesystem::path& folder, const StreamHeader& header,
             const PackOptions& options);
  ~PackWriter() override;
  void begin_document() override;
  void write(const TokenId* ids, std::size_t count) override;
  void finish(const std::optional<TextCounts>& counts) override;

  // Keys for the manifest beside those of ql-manifest(5); call before finish().
  void keep_unknown(const Json& unknown);
  // After finish().
  const Manifest& manifest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ql::shard
