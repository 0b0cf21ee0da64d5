// One long zstd frame, a piece at a time: for content that should not stand in memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/random_access_file.h"

namespace ql::shard {

// Makes what FrameCompressor makes, though not the same bytes: a frame that states its content's
// size and ends with a checksum.
class FrameStreamWriter {
 public:
  // `level` as of FrameCompressor. The content will have `content_size` bytes.
  FrameStreamWriter(int level, std::int64_t content_size);
  ~FrameStreamWriter();
  FrameStreamWriter(const FrameStreamWriter&) = delete;
  FrameStreamWriter& operator=(const FrameStreamWriter&) = delete;
  // Returns the part of the frame that is ready, valid until the next call.
  std::string_view write(std::string_view content);
  // The rest of it. std::logic_error when there was more or less content than announced.
  std::string_view finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reads a file that is one zstd frame. Takes memory for the frame's window, at most 128 MiB.
class FrameStreamReader {
 public:
  // Throws FormatError unless the frame states a content of `content_size` bytes. `file` must
  // outlive this object; `name` is for messages.
  FrameStreamReader(const RandomAccessFile& file, const std::string& name,
                    std::int64_t content_size);
  ~FrameStreamReader();
  FrameStreamReader(const FrameStreamReader&) = delete;
  FrameStreamReader& operator=(const FrameStreamReader&) = delete;
  // Reads exactly `size` bytes of content. When they were the last (and at once, with size 0, when
  // there are none), the frame has been found good up to its checksum and the file's end. Throws
  // FormatError for damage.
  void read(void* content, std::size_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ql::shard
