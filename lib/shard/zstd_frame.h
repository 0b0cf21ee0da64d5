// One zstd frame at a time, always with its content's size and checksum. (Without the checksum most
// flipped bits give wrong data and no error.)
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ql::shard {

class FrameCompressor {
 public:
  // `level` 1 to 22, as of the zstd command.
  explicit FrameCompressor(int level);
  ~FrameCompressor();
  FrameCompressor(FrameCompressor&&) noexcept;
  FrameCompressor& operator=(FrameCompressor&&) = delete;
  // The frame stays valid until the next call.
  std::string_view compress(std::string_view content);

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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ql::shard
