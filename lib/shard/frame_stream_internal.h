// One long zstd frame, a piece at a time: for content that should not stand in memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/random_access_file.h"
#include "shard/zstd_frame_internal.h"

namespace ql::shard {

// Makes what FrameCompressor makes, though not the same bytes: a frame that states its content's
// size and ends with a checksum.
class FrameStreamWriter {
 public:
  // `level` as of FrameCompressor. The content will have `content_size` bytes.
  FrameStreamWriter(int level, std::int64_t content_size);
  // Returns the part of the frame that is ready, valid until the next call.
  std::string_view write(std::string_view content);
  // The rest of it. std::logic_error when there was more or less content than announced.
  std::string_view finish();

 private:
  std::string_view compress(std::string_view content, bool ends);

  CompressionContext context_;
  std::int64_t expected_;  // bytes of content
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
  // Goes on until `size` bytes are there or the frame ends; returns how many there are.
  std::size_t decompress(void* content, std::size_t size);

  DecompressionContext context_;
  const RandomAccessFile& file_;
  std::string name_;
  std::int64_t content_left_;
  std::int64_t offset_ = 0;  // in the file, behind `piece_`
  std::string piece_;        // of the file
  std::size_t used_ = 0;     // of `piece_`
  bool ended_ = false;       // the frame
};

}  // namespace ql::shard
