// zstd frames, always with their content's size and checksum. (Without the checksum most flipped
// bits give wrong data and no error.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/random_access_file.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ql::shard {

struct FreeContext {
  void operator()(ZSTD_CCtx_s* context) const;
  void operator()(ZSTD_DCtx_s* context) const;
};
using CompressionContext = std::unique_ptr<ZSTD_CCtx_s, FreeContext>;
using DecompressionContext = std::unique_ptr<ZSTD_DCtx_s, FreeContext>;

class FrameCompressor {
 public:
  // `level` 1 to 22, as of the zstd command, or 0: codes bytes by their frequency and hardly looks
  // for repetitions. `bytes_per_id`: of the ids in the content; 0 for other content.
  explicit FrameCompressor(int level, int bytes_per_id = 0);
  std::string compress(std::string_view content);

 private:
  CompressionContext context_;
};

class FrameDecompressor {
 public:
  FrameDecompressor();
  // `frame` must be exactly one zstd frame with a content of `content_size` bytes, which the caller
  // has capped. Returns "" and fills `content`, which has room for them, or returns what is wrong.
  std::string decompress(std::string_view frame, std::size_t content_size, void* content);

 private:
  DecompressionContext context_;
};

// Makes one long frame a piece at a time, for content that should not stand in memory as a whole:
// what FrameCompressor makes, though not the same bytes.
class FrameStreamWriter {
 public:
  // `level` as of FrameCompressor. The content will have `content_size` bytes.
  FrameStreamWriter(int level, std::int64_t content_size);
  // Returns the part of the frame that is ready, valid until the next call; with `ends` the rest of
  // it. Throws Error when there was more or less content than announced.
  std::string_view compress(std::string_view content, bool ends);

 private:
  CompressionContext context_;
  std::string ready_;
};

// Reads a file that is one zstd frame. Takes memory for the frame's window, at most 128 MiB.
class FrameStreamReader {
 public:
  // Throws FormatError unless the frame states a content of `content_size` bytes. `file` must
  // outlive this object; `name` is for messages.
  FrameStreamReader(const RandomAccessFile& file, std::string name, std::int64_t content_size);
  // Reads exactly `size` bytes of content. When they were the last (and at once, with size 0, when
  // there are none), the frame has been found good up to its checksum and the file's end. Throws
  // FormatError for damage.
  void read(void* content, std::size_t size);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void load_piece();

  DecompressionContext context_;
  const RandomAccessFile& file_;
  std::string name_;
  std::int64_t content_left_;
  std::int64_t offset_ = 0;  // in the file, behind `piece_`
  std::string piece_;        // of the file
  std::size_t used_ = 0;     // of `piece_`
};

// The checksum that a whole frame carries, the low half of its content's XXH64; compress() made
// sure of it, and decompress() has compared it with the content. Absent in frames of others that do
// without.
std::optional<std::uint32_t> frame_checksum(std::string_view frame);

}  // namespace ql::shard
