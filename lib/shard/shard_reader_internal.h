// Reads one shard frame by frame, see ql-shard(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random_access_file.h"
#include "shard/id_codec.h"
#include "shard/manifest.h"
#include "shard/seek_table_internal.h"
#include "shard/zstd_frame_internal.h"

namespace ql::shard {

// A frame on its way from the file to its ids; kept for its memory.
struct FrameBuffer {
  std::string stored;  // as in the file
  std::string content;
  std::vector<TokenId> ids;
  FrameDecompressor decompressor;
};

class ShardReader {
 public:
  // Opens the file and checks its size and seek table against the manifest. `begin` is the position
  // of its first token in the data.
  ShardReader(const PackedFolder& place, const ShardEntry& entry, std::int64_t begin,
              const VocabularyInfo& vocabulary);

  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return frame_begins_.back(); }
  std::size_t frames() const { return frames_.size(); }
  // Positions in the data.
  std::int64_t frame_begin(std::size_t frame) const { return frame_begins_[frame]; }
  std::int64_t frame_end(std::size_t frame) const { return frame_begins_[frame + 1]; }
  // Bytes that the frame takes in a FrameBuffer.
  std::size_t frame_memory(std::size_t frame) const;
  // The frame that holds a position of this shard.
  std::size_t frame_of(std::int64_t position) const;

  // Replaces buffer.ids by the frame's: load_frame() and then decode_frame().
  void read_frame(std::size_t frame, FrameBuffer& buffer);
  // Reads the frame into buffer.stored.
  void load_frame(std::size_t frame, FrameBuffer& buffer);
  // Makes buffer.ids from buffer.stored. Throws FormatError unless the frame is exactly what the
  // seek table says and all its ids belong to the vocabulary. Safe from several threads with a
  // buffer each.
  void decode_frame(std::size_t frame, FrameBuffer& buffer) const;
  // The ids of a decoded frame as bytes of the data's width, as data_hash covers them.
  std::string_view content(const FrameBuffer& buffer) const;
  // The seek table follows the frames in the file.
  std::string seek_table() const { return encode_seek_table(frames_); }

  // The file is opened when it is needed; a reader of many shards closes those it has left.
  bool is_open() const { return file_ != nullptr; }
  void close() { file_.reset(); }
  // Gives the opened file a second name. False where that cannot be: on another file system, or on
  // one without such links.
  bool hard_link(const std::filesystem::path& name);
  const std::string& name() const { return name_; }
  // The hash of the whole file, as it is on the disk.
  std::string hash();
  // Throws FormatError unless the hash is the manifest's. For those who have found all frames good.
  void check_hash(const std::string& hash) const;

 private:
  const RandomAccessFile& file();
  // True when ids are decoded where they are used, without a copy of their bytes.
  bool in_place() const { return kIdsAreBytes && bytes_per_id_ == sizeof(TokenId); }

  std::filesystem::path path_;
  std::string name_, expected_hash_;
  std::int64_t begin_, vocabulary_size_;
  int bytes_per_id_;
  std::unique_ptr<RandomAccessFile> file_;
  std::vector<SeekEntry> frames_;
  std::vector<std::int64_t> frame_begins_;   // and the shard's end: positions in the data
  std::vector<std::int64_t> frame_offsets_;  // in the file
};

}  // namespace ql::shard
