#include "shard/shard_writer_internal.h"

#include <fmt/format.h>

#include "base/log.h"
#include "shard/zstd_frame_internal.h"

namespace ql::shard {

std::string shard_file_name(std::size_t number) { return fmt::format("shard-{:05}.zst", number); }

ShardWriter::ShardWriter(const NewFolder& folder, std::size_t number) {
  entry_.file = shard_file_name(number);
  file_ = folder.create(entry_.file);
}

void ShardWriter::write(std::string_view bytes) {
  file_->write(bytes.data(), bytes.size());
  hasher_.update(bytes.data(), bytes.size());
  entry_.bytes_compressed += static_cast<std::int64_t>(bytes.size());
}

void ShardWriter::write_frame(std::string_view frame, std::size_t content_bytes) {
  write(frame);
  // The table repeats the checksum that zstd has computed already.
  frames_.push_back({static_cast<std::uint32_t>(frame.size()),
                     static_cast<std::uint32_t>(content_bytes), frame_checksum(frame).value()});
  entry_.bytes += static_cast<std::int64_t>(content_bytes);
}

ShardEntry ShardWriter::finish(int bytes_per_id) {
  write(encode_seek_table(frames_));
  file_->close();
  entry_.tokens = entry_.bytes / bytes_per_id;
  entry_.hash = hasher_.digest();
  log_debug("{}: {} tokens in {} frames, {} bytes", entry_.file, entry_.tokens, frames_.size(),
            entry_.bytes_compressed);
  return entry_;
}

}  // namespace ql::shard
