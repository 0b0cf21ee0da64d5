// Reads a shard frame by frame (ql-shard(5)), converts ids to bytes and back, and creates the files
// of new folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/file.h"
#include "shard/packed_folder.h"
#include "shard/zstd_frame.h"

namespace ql::shard {

// Token ids are stored as u16 or u32, little-endian, in the blocks of a stream and in the frames of
// a shard.

// This is true where ids of 4 bytes have the same bytes in memory and in a file.
constexpr bool kIdsAreBytes = sizeof(TokenId) == 4 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

// Appends `count` ids with `bytes_per_id` (2 or 4) bytes each.
void append_ids(std::string& bytes, const TokenId* ids, std::size_t count, int bytes_per_id);

// Replaces `ids` by the ids in `size` bytes; `size` must be a multiple of bytes_per_id.
void decode_ids(const void* bytes, std::size_t size, int bytes_per_id, std::vector<TokenId>& ids);

// Returns the index of the first id that is not below `vocabulary_size`, or -1.
std::int64_t first_id_outside(const TokenId* ids, std::size_t count, std::int64_t vocabulary_size);
// Returns a message about the first id outside the vocabulary, or "" when all ids are valid.
// `position` is the position of ids[0] in the data.
std::string outside_id(const std::vector<TokenId>& ids, std::int64_t position,
                       std::int64_t vocabulary_size);

// These functions check the path of a new folder.

// Returns `folder` without a trailing slash. Accepts a path at which there is nothing or an empty
// folder. With `force`, also accepts a folder that holds a manifest.json and otherwise only shards,
// documents.zst and vocabulary.json. Throws Error when anything else is there. Throws UsageError
// for a name such as "." that a new folder cannot have.
std::filesystem::path check_pack_target(const std::filesystem::path& folder, bool force);

// Returns `folder` without a trailing slash. Throws Error when anything except an empty folder is
// at this path. Throws UsageError for a name that a new folder cannot have.
std::filesystem::path check_empty_target(const std::filesystem::path& folder);

// Makes a folder that gets its name only when it is complete.
class NewFolder : public AtomicFolder {
 public:
  // `path` must come from one of the check functions above. Creates missing parent folders.
  explicit NewFolder(const fs::path& path);
  const fs::path& path() const { return path_; }
  // Creates a file in the folder.
  std::unique_ptr<NewFile> create(const std::string& file) const {
    return std::make_unique<NewFile>(temporary() / file, (path_ / file).string());
  }

 private:
  fs::path path_;
};

// Holds the memory for reading and decoding one frame. Callers reuse a buffer for further frames.
struct FrameBuffer {
  std::string stored;  // the frame's bytes in the file
  std::string content;
  std::vector<TokenId> ids;
  FrameDecompressor decompressor;
};

class ShardReader {
 public:
  // Opens the file and checks its size and seek table against the manifest, so that a shard of
  // other data is refused. `begin` is the position of the shard's first token in the data.
  ShardReader(const PackedFolder& place, const FileEntry& entry, std::int64_t begin,
              const VocabularyInfo& vocabulary);

  std::size_t frames() const { return frames_.size(); }
  // These functions return positions in the complete data, not in the shard.
  std::int64_t frame_begin(std::size_t frame) const { return frame_begins_[frame]; }
  std::int64_t frame_end(std::size_t frame) const { return frame_begins_[frame + 1]; }
  // Returns the number of bytes that the frame takes in a FrameBuffer.
  std::size_t frame_memory(std::size_t frame) const;
  // Returns the index of the frame that holds a position, which must be in this shard.
  std::size_t frame_of(std::int64_t position) const;

  // Reads the frame into buffer.stored.
  void load_frame(std::size_t frame, FrameBuffer& buffer);
  // Decodes buffer.stored into buffer.ids. Throws FormatError unless the frame agrees with its
  // entry in the seek table and all its ids belong to the vocabulary. Several threads may call this
  // function at once, each with its own buffer.
  void decode_frame(std::size_t frame, FrameBuffer& buffer) const;
  // Returns the ids of a decoded frame as the bytes that data_hash covers, in the data's id width.
  std::string_view content(const FrameBuffer& buffer) const;
  // Returns the seek table, which follows the frames in the file.
  std::string seek_table() const { return encode_seek_table(frames_); }

  // The file is opened when it is needed, also after close(). A reader of many shards closes the
  // shards that it has finished.
  bool is_open() const { return file_ != nullptr; }
  void close() { file_.reset(); }
  const RandomAccessFile& file();
  // Throws FormatError unless `hash` is the hash in the manifest. Call it only when all frames are
  // valid: the message states that they are.
  void check_hash(const std::string& hash) const;

 private:
  // Returns true when frames are decompressed directly into FrameBuffer::ids, without a copy in
  // FrameBuffer::content.
  bool in_place() const { return kIdsAreBytes && bytes_per_id_ == sizeof(TokenId); }

  std::filesystem::path path_;
  std::string name_, expected_hash_;
  std::int64_t vocabulary_size_;
  int bytes_per_id_;
  std::unique_ptr<RandomAccessFile> file_;
  std::vector<SeekEntry> frames_;
  std::vector<std::int64_t> frame_begins_;   // positions in the data, then the shard's end
  std::vector<std::int64_t> frame_offsets_;  // in the file, in bytes
};

// Writes a file and makes its entry for the manifest.
class HashedFile {
 public:
  explicit HashedFile(std::unique_ptr<NewFile> file) : file_(std::move(file)) {}
  void write(std::string_view bytes);
  // Closes the file. Returns the file's entry with this name and this size of the uncompressed
  // content.
  FileEntry finish(const std::string& name, std::int64_t content_bytes);

 private:
  std::unique_ptr<NewFile> file_;
  std::int64_t size_ = 0;
  ContentHasher hasher_;
};

// Returns the name of shard `number`: "shard-00000.zst" for 0.
std::string shard_file_name(std::size_t number);

}  // namespace ql::shard
