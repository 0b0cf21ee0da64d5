#include "shard/shard_reader_internal.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file_kind.h"
#include "base/log.h"
#include "shard/damaged_file_internal.h"

namespace ql::shard {

ShardReader::ShardReader(const PackedFolder& place, const ShardEntry& entry, std::int64_t begin,
                         const VocabularyInfo& vocabulary)
    : path_(path_inside(place, entry.file)),
      name_(path_.string()),
      expected_hash_(entry.hash),
      begin_(begin),
      vocabulary_size_(vocabulary.size),
      bytes_per_id_(vocabulary.bytes_per_id()) {
  const RandomAccessFile& opened = file();
  if (opened.size() != entry.bytes_compressed) {
    const std::string head = opened.head();
    if (file_kind(head) != FileKind::kZstd) check_kind(head, Content::kRawIds, name_);
    throw FormatError(
        name_,
        fmt::format("{} bytes, but the manifest says {}", opened.size(), entry.bytes_compressed),
        kDamagedFileCure);
  }
  frames_ = read_seek_table(opened, name_);
  frame_begins_.reserve(frames_.size() + 1);
  frame_offsets_.reserve(frames_.size());
  std::int64_t position = begin, offset = 0;
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    if (frames_[i].content_bytes % static_cast<std::uint32_t>(bytes_per_id_) != 0) {
      throw FormatError(
          name_,
          fmt::format("frame {}: {} bytes are no whole number of ids", i, frames_[i].content_bytes),
          kDamagedFileCure);
    }
    frame_begins_.push_back(position);
    frame_offsets_.push_back(offset);
    position += frames_[i].content_bytes / static_cast<std::uint32_t>(bytes_per_id_);
    offset += frames_[i].frame_bytes;
  }
  frame_begins_.push_back(position);
  if (position - begin != entry.tokens) {
    throw FormatError(name_,
                      fmt::format("the seek table has {} tokens, but the manifest says {}",
                                  position - begin, entry.tokens),
                      kDamagedFileCure);
  }
  log_debug("reading {}: {} tokens in {} frames", name_, entry.tokens, frames_.size());
}

const RandomAccessFile& ShardReader::file() {
  if (!file_) file_ = std::make_unique<RandomAccessFile>(path_);
  return *file_;
}

std::string ShardReader::hash() { return file().hash(); }

void ShardReader::check_hash(const std::string& hash) const {
  if (hash == expected_hash_) return;
  throw FormatError(name_, "hash mismatch, though all frames are good", kDamagedFileCure);
}

bool ShardReader::hard_link(const std::filesystem::path& name) { return file().hard_link(name); }

std::size_t ShardReader::frame_memory(std::size_t frame) const {
  const SeekEntry& entry = frames_[frame];
  const std::size_t ids = entry.content_bytes / static_cast<std::uint32_t>(bytes_per_id_);
  return entry.frame_bytes + (in_place() ? 0 : entry.content_bytes) + ids * sizeof(TokenId);
}

std::size_t ShardReader::frame_of(std::int64_t position) const {
  const auto next = std::upper_bound(frame_begins_.begin(), frame_begins_.end(), position);
  return static_cast<std::size_t>(next - frame_begins_.begin()) - 1;
}

void ShardReader::read_frame(std::size_t frame, FrameBuffer& buffer) {
  load_frame(frame, buffer);
  decode_frame(frame, buffer);
}

void ShardReader::load_frame(std::size_t frame, FrameBuffer& buffer) {
  buffer.stored.resize(frames_[frame].frame_bytes);
  file().read(frame_offsets_[frame], buffer.stored.data(), buffer.stored.size());
}

void ShardReader::decode_frame(std::size_t frame, FrameBuffer& buffer) const {
  const SeekEntry& entry = frames_[frame];
  const auto fail = [&](const std::string& what) {
    throw FormatError(fmt::format("{}: frame {}", name_, frame), what, kDamagedFileCure);
  };
  std::vector<TokenId>& ids = buffer.ids;
  if (in_place()) {
    ids.resize(entry.content_bytes / sizeof(TokenId));
  } else {
    buffer.content.resize(entry.content_bytes);
  }
  void* content = in_place() ? static_cast<void*>(ids.data()) : buffer.content.data();
  const std::string problem =
      buffer.decompressor.decompress(buffer.stored, entry.content_bytes, content);
  if (!problem.empty()) fail(problem);
  // zstd has compared the frame's own checksum, which is the same hash of the same bytes.
  const std::optional<std::uint32_t> compared = frame_checksum(buffer.stored);
  const std::uint32_t checksum = compared ? *compared : seek_checksum(content, entry.content_bytes);
  if (checksum != entry.checksum) fail("checksum mismatch");
  if (!in_place()) decode_ids(content, entry.content_bytes, bytes_per_id_, ids);
  const std::string foreign = foreign_id(ids, frame_begin(frame), vocabulary_size_);
  if (!foreign.empty()) fail(foreign);
}

std::string_view ShardReader::content(const FrameBuffer& buffer) const {
  if (!in_place()) return buffer.content;
  return {reinterpret_cast<const char*>(buffer.ids.data()), buffer.ids.size() * sizeof(TokenId)};
}

}  // namespace ql::shard
