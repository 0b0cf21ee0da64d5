// Reads and writes zstd frames, and the seek table that makes the frames of a shard addressable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ql::shard {

// All zstd frames that are written here state the size and the checksum of their content. Without
// the checksum most flipped bits would give wrong data and no error.

using CompressionContext = std::unique_ptr<ZSTD_CCtx_s, std::size_t (*)(ZSTD_CCtx_s*)>;
using DecompressionContext = std::unique_ptr<ZSTD_DCtx_s, std::size_t (*)(ZSTD_DCtx_s*)>;

class FrameCompressor {
 public:
  // `level` is 1 to 22, as for the zstd command, or 0 for entropy coding with almost no search for
  // repetitions. `bytes_per_id` is the size of the ids in the content, or 0 for other content.
  explicit FrameCompressor(int level, int bytes_per_id = 0);
  std::string compress(std::string_view content);

 private:
  CompressionContext context_;
};

class FrameDecompressor {
 public:
  FrameDecompressor();
  // Decompresses `frame`, which must be exactly one zstd frame with `content_size` bytes of
  // content; the caller limits this size. Fills `content`, which must have room for these bytes.
  // Returns "", or a message if the frame is wrong.
  std::string decompress(std::string_view frame, std::size_t content_size, void* content);

 private:
  DecompressionContext context_;
};

// Makes one long frame piece by piece, for content that should not be in memory all at once. The
// frame decompresses to the same content as a frame of FrameCompressor, but the bytes of the two
// frames may differ.
class FrameStreamWriter {
 public:
  // `level` is 1 to 22, as for FrameCompressor; 0 counts as 1. The content will have `content_size`
  // bytes.
  FrameStreamWriter(int level, std::int64_t content_size);
  // Adds content. Returns the part of the frame that is ready. If `ends` is true, this is the last
  // content, and the function returns the rest of the frame. The result is valid until the next
  // call. Throws Error when the content is longer or shorter than `content_size`.
  std::string_view compress(std::string_view content, bool ends);

 private:
  CompressionContext context_;
  std::string ready_;
};

// Reads a file that is one zstd frame. Takes at most 128 MiB of memory for the latest content, to
// which the frame may refer back (zstd's window).
class FrameStreamReader {
 public:
  // Throws FormatError unless the frame states a content of `content_size` bytes. `file` must
  // outlive this object; `name` is for messages.
  FrameStreamReader(const RandomAccessFile& file, std::string name, std::int64_t content_size);
  // Reads exactly `size` bytes of content. The call that reads the last bytes also checks the
  // frame's checksum, and that the file ends there. If the content is empty, a call with size 0
  // makes these checks. Throws FormatError for damage.
  void read(void* content, std::size_t size);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void load_piece();

  DecompressionContext context_;
  const RandomAccessFile& file_;
  std::string name_;
  std::int64_t content_left_;
  std::int64_t offset_ = 0;  // in the file, of the first byte after `piece_`
  std::string piece_;        // bytes of the file
  std::size_t used_ = 0;     // bytes of `piece_` that zstd has read
};

// Returns the checksum that a complete frame stores: the low half of its content's XXH64.
// compress() always stores a checksum, and decompress() compares it with the content. A frame
// of another program may store none; then this function returns nothing.
std::optional<std::uint32_t> frame_checksum(std::string_view frame);

// The seek table at the end of a shard makes the shard's frames addressable. It has zstd's seekable
// format (ql-shard(5)).

constexpr std::int64_t kLargestFrameBytes = std::int64_t{64} << 20;  // of content
constexpr std::int64_t kMostFrames = 0x8000000;                      // the seekable format's limit

struct SeekEntry {
  std::uint32_t frame_bytes = 0;    // in the file
  std::uint32_t content_bytes = 0;  // decompressed
  std::uint32_t checksum = 0;       // low half of the content's XXH64
};

// Returns the checksum of `content` that a SeekEntry stores.
std::uint32_t seek_checksum(const void* content, std::size_t size);

// Returns the skippable zstd frame that holds the seek table.
std::string encode_seek_table(const std::vector<SeekEntry>& entries);

// Reads the seek table at the file's end. Throws FormatError if frames and table do not fill the
// file exactly, if a frame is empty, or if a frame has more than kLargestFrameBytes of content.
// `name` is for these errors.
std::vector<SeekEntry> read_seek_table(const RandomAccessFile& file, const std::string& name);

}  // namespace ql::shard
