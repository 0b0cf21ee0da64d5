// One zstd frame at a time, always with its content's size and checksum. (Without the checksum most
// flipped bits give wrong data and no error.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ql::shard {

struct FreeContext {
  void operator()(ZSTD_CCtx_s* context) const;
  void operator()(ZSTD_DCtx_s* context) const;
};
using CompressionContext = std::unique_ptr<ZSTD_CCtx_s, FreeContext>;
using DecompressionContext = std::unique_ptr<ZSTD_DCtx_s, FreeContext>;

// Frames that it makes end with a checksum. `level` as of FrameCompressor.
CompressionContext make_compression_context(int level);
DecompressionContext make_decompression_context();

// Returns what a function of zstd's compressor returned. Throws Error when that is an error.
std::size_t check_compression(std::size_t result);

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
  FrameDecompressor() : context_(make_decompression_context()) {}
  // `frame` must be exactly one zstd frame with a content of `content_size` bytes, which the caller
  // has capped. Returns "" and fills `content`, which has room for them, or returns what is wrong.
  std::string decompress(std::string_view frame, std::size_t content_size, void* content);

 private:
  DecompressionContext context_;
};

// Returns how many of `threads` may work on frames with a content of `frame_bytes` at once: at
// least 1, and fewer than all where frames are so large that those on their way would fill the
// memory.
int threads_for_frames(int threads, std::int64_t frame_bytes);

// The checksum that a whole frame carries, the low half of its content's XXH64; compress() made
// sure of it, and decompress() has compared it with the content. Absent in frames of others that do
// without.
std::optional<std::uint32_t> frame_checksum(std::string_view frame);

}  // namespace ql::shard
