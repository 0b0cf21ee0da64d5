// The table at the end of a shard that makes its frames addressable: zstd's seekable format, see
// ql-shard(5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random_access_file.h"

namespace ql::shard {

constexpr std::int64_t kLargestFrameBytes = std::int64_t{64} << 20;  // of content
constexpr std::int64_t kMostFrames = 0x8000000;                      // the seekable format's limit

struct SeekEntry {
  std::uint32_t frame_bytes = 0;    // in the file
  std::uint32_t content_bytes = 0;  // decompressed
  std::uint32_t checksum = 0;       // low half of the content's XXH64
};

// Checksum as an entry holds it.
std::uint32_t seek_checksum(const void* content, std::size_t size);

// The skippable frame with the table.
std::string encode_seek_table(const std::vector<SeekEntry>& entries);

// Reads the table from the file's end. Guarantees that frames and table fill the file exactly, that
// no frame is empty and that no content exceeds kLargestFrameBytes. `name` is for FormatErrors.
std::vector<SeekEntry> read_seek_table(const RandomAccessFile& file, const std::string& name);

}  // namespace ql::shard
