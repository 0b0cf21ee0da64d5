// Packs tokens into a folder of shards with a manifest (ql-manifest(5)).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/jobs.h"
#include "shard/document_starts.h"
#include "shard/manifest.h"
#include "shard/shard.h"
#include "shard/token_stream.h"
#include "shard/zstd_frame.h"

namespace ql::shard {

struct PackOptions {
  std::int64_t shard_tokens = 64'000'000;  // need not be a multiple of frame_tokens
  std::int64_t frame_tokens = 65'536;
  std::optional<int> level;  // see FrameCompressor; absent: default_level()
  bool force = false;        // replace an existing packed folder
  int threads = 1;           // for compression; the files are the same for any number
};

// Returns the compression level for a vocabulary. Ids of words and pieces of words rarely form
// repetitions. Packing with a search for repetitions would take nearly twice as long and save 5 to
// 8 per cent, so vocabularies of more than 1,024 entries get level 0. Characters and bytes repeat,
// so smaller vocabularies get level 1.
int default_level(std::int64_t vocabulary_size);

// Makes a packed folder from shards that the caller creates with create(). All files are written in
// a folder with a temporary name next to `folder`; finish() gives that folder its final name.
// Without finish() nothing remains, and an existing `folder` stays unchanged.
class NewPack : public NewFolder {
 public:
  // Throws the errors of check_pack_target().
  NewPack(const std::filesystem::path& folder, StreamHeader header, const PackOptions& options);
  const StreamHeader& header() const { return header_; }
  // Returns the level of compression.
  int level() const { return options_.level.value_or(default_level(header_.vocabulary.size)); }
  // Adds ids to data_hash, as bytes in the data's id width.
  void hash(std::string_view content) { hasher_.update(content.data(), content.size()); }
  // Writes the document starts, the vocabulary and the manifest. send_starts(sink) must pass all
  // starts to `sink`. The caller must have set shards, tokens, documents and counts of `manifest`.
  // finish() adds the provenance of header(). Throws Error if readers would refuse the manifest.
  void finish(Manifest& manifest, const std::function<void(const StartsSink& sink)>& send_starts);

 private:
  void write_file(const std::string& file, const std::string& content) const;

  StreamHeader header_;
  PackOptions options_;
  ContentHasher hasher_;
};

// Packs tokens into a NewPack. All frames of a shard have equal size, except that the last one may
// be shorter.
class PackWriter : public TokenSink {
 public:
  // Throws UsageError for sizes that do not fit the format, and the errors of check_pack_target().
  PackWriter(const std::filesystem::path& folder, const StreamHeader& header,
             const PackOptions& options);
  PackWriter(PackWriter&&) = delete;
  void begin_document() override { document_begins_ = true; }
  void write(const TokenId* ids, std::size_t count) override;
  void finish(const std::optional<TextCounts>& counts) override;

  // Sets the unknown keys of the manifest (ql-manifest(5)). Call it before finish().
  void keep_unknown(const Json& unknown) { manifest_.unknown = unknown; }
  // Call it after finish().
  const Manifest& manifest() const { return manifest_; }

 private:
  struct PackedFrame {
    std::string content;  // ids as bytes
    std::string frame;    // compressed
  };

  std::int64_t room() const;
  void write_frame();
  void write_to_file(const PackedFrame& packed);
  void finish_shard();

  PackOptions options_;
  int bytes_per_id_;
  NewPack pack_;
  SpooledStarts document_starts_;
  std::optional<HashedFile> shard_;
  std::vector<SeekEntry> seek_table_;  // of the current shard
  std::int64_t tokens_in_shard_ = 0;   // in frames passed to the threads
  std::int64_t tokens_in_file_ = 0;    // in frames written to the shard's file
  std::string frame_;                  // ids of the current frame, as bytes
  bool document_begins_ = true, finished_ = false;
  Manifest manifest_;
  ObjectPool<FrameCompressor> compressors_;
  OrderedJobs<PackedFrame> jobs_;
};

}  // namespace ql::shard
