// One zstd frame at a time, always with its content's size and checksum. (Without the checksum most
// flipped bits give wrong data and no error.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ql::shard {

class FrameCompressor {
 public:
  // `level` 1 to 22, as of the zstd command, or 0: codes bytes by their frequency and hardly looks
  // for repetitions. `bytes_per_id`: of the ids in the content; 0 for other content.
  explicit FrameCompressor(int level, int bytes_per_id = 0);
  ~FrameCompressor();
  FrameCompressor(FrameCompressor&&) noexcept;
  FrameCompressor& operator=(FrameCompressor&&) = delete;
  // The frame stays valid until the next call.
  std::string_view compress(std::string_view content);
  // Replaces `frame`.
  void compress(std::string_view content, std::string& frame);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class FrameDecompressor {
 public:
  FrameDecompressor();
  ~FrameDecompressor();
  FrameDecompressor(FrameDecompressor&&) noexcept;
  FrameDecompressor& operator=(FrameDecompressor&&) = delete;
  // `frame` must be exactly one zstd frame with a content of `content_size` bytes, which the caller
  // has capped. Returns "" and fills `content`, or returns what is wrong.
  std::string decompress(std::string_view frame, std::size_t content_size, std::string& content);
  // The same into memory for `content_size` bytes.
  std::string decompress(std::string_view frame, std::size_t content_size, void* content);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// How many of `threads` may work on frames with a content of `frame_bytes` at once, at least 1:
// fewer where frames are so large that those on their way would fill the memory.
int threads_for_frames(int threads, std::int64_t frame_bytes);

// The checksum that a whole frame carries, the low half of its content's XXH64; compress() made
// sure of it, and decompress() has compared it with the content. Absent in frames of others that do
// without.
std::optional<std::uint32_t> frame_checksum(std::string_view frame);

}  // namespace ql::shard
