// Reads one shard frame by frame, see ql-shard(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "shard/manifest.h"
#include "shard/raw_file.h"
#include "shard/seek_table.h"
#include "shard/zstd_frame.h"

namespace ql::shard {

class ShardReader {
 public:
  // Opens the file and checks its size and seek table against the manifest. `begin` is the position
  // of its first token in the data.
  ShardReader(const PackedFolder& place, const ShardEntry& entry, std::int64_t begin,
              const VocabularyInfo& vocabulary, int bytes_per_id);

  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return frame_begins_.back(); }
  std::size_t frames() const { return frames_.size(); }
  // Positions in the data.
  std::int64_t frame_begin(std::size_t frame) const { return frame_begins_[frame]; }
  std::int64_t frame_end(std::size_t frame) const { return frame_begins_[frame + 1]; }
  // The frame that holds a position of this shard.
  std::size_t frame_of(std::int64_t position) const;

  // Replaces `ids` by the frame's. Throws FormatError unless the frame is exactly what the seek
  // table says and all its ids belong to the vocabulary.
  void read_frame(std::size_t frame, FrameDecompressor& decompressor, std::vector<TokenId>& ids);

  // The file is opened when it is needed; a reader of many shards closes those it has left.
  bool is_open() const { return file_ != nullptr; }
  void close() { file_.reset(); }
  const std::string& name() const { return name_; }
  // Of the whole file.
  std::string hash();

 private:
  const RandomAccessFile& file();

  std::filesystem::path path_;
  std::string name_;
  std::int64_t begin_, vocabulary_size_;
  int bytes_per_id_;
  std::unique_ptr<RandomAccessFile> file_;
  std::vector<SeekEntry> frames_;
  std::vector<std::int64_t> frame_begins_;   // and the shard's end: positions in the data
  std::vector<std::int64_t> frame_offsets_;  // in the file
  std::string frame_bytes_, content_;
};

}  // namespace ql::shard
