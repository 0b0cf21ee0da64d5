// Writes one shard, see ql-shard(5).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "shard/manifest.h"
#include "shard/new_folder_internal.h"
#include "shard/seek_table_internal.h"

namespace ql::shard {

// The name of a folder's shard: "shard-00000.zst" and so on.
std::string shard_file_name(std::size_t number);

class ShardWriter {
 public:
  ShardWriter(const NewFolder& folder, std::size_t number);
  // One frame as FrameCompressor made it of `content_bytes` of ids: at least 1, at most
  // kLargestFrameBytes; at most kMostFrames of them.
  void write_frame(std::string_view frame, std::size_t content_bytes);
  // Writes the seek table and closes the file. `bytes_per_id` makes the token count.
  ShardEntry finish(int bytes_per_id);

 private:
  void write(std::string_view bytes);
  ShardEntry entry_;
  std::unique_ptr<NewFile> file_;
  ContentHasher hasher_;
  std::vector<SeekEntry> frames_;
};

}  // namespace ql::shard
