// documents.zst: the positions where documents start, see ql-manifest(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/random_access_file.h"
#include "shard/frame_stream_internal.h"
#include "shard/manifest.h"

namespace ql::shard {

// The starts as the file's content holds them: little-endian u64.
std::string encode_document_starts(const std::vector<std::int64_t>& starts);

// Reads the starts in their order, a piece at a time: there may be more than memory holds.
class DocumentStartsReader {
 public:
  // Throws FormatError unless the file has the size and hash that the manifest says. `manifest`
  // must outlive this object.
  DocumentStartsReader(const PackedFolder& place, const Manifest& manifest);
  // Replaces `starts` by the next ones; false behind the last. Throws FormatError for starts that
  // are not strictly ascending from 0 and below the number of tokens.
  bool read(std::vector<std::int64_t>& starts);

 private:
  std::string name_;
  const Manifest& manifest_;
  RandomAccessFile file_;
  std::optional<FrameStreamReader> frame_;
  std::string bytes_;
  std::int64_t documents_ = 0, last_ = -1;  // read so far, and the start of the last of them
};

// Calls use(bytes) with all starts, `before` added to each, as encode_document_starts() makes them.
void for_each_piece_of_starts(const PackedFolder& place, const Manifest& manifest,
                              std::int64_t before,
                              const std::function<void(std::string_view bytes)>& use);

// Walks along the tokens of a folder and says where documents start.
class DocumentStartsAhead {
 public:
  static constexpr std::int64_t kNone = INT64_MAX;
  // Begins at token `position`. `manifest` must outlive this object.
  DocumentStartsAhead(const PackedFolder& place, const Manifest& manifest, std::int64_t position);
  // Returns where the next document starts; kNone behind the last.
  std::int64_t next() const { return at_ < starts_.size() ? starts_[at_] : kNone; }
  // Passes next(), which must not be kNone.
  void pass();

 private:
  DocumentStartsReader reader_;
  std::vector<std::int64_t> starts_;
  std::size_t at_ = 0;
};

// All of them, in 8 bytes each.
std::vector<std::int64_t> read_document_starts(const PackedFolder& place, const Manifest& manifest);

// Writes the file a piece at a time.
class DocumentStartsWriter {
 public:
  // `folder` is where the file is created, `shown_folder` what error messages call it, `level` as
  // of FrameCompressor.
  DocumentStartsWriter(const std::filesystem::path& folder, const std::string& shown_folder,
                       std::int64_t documents, int level);
  // Starts as encode_document_starts() makes them.
  void write(std::string_view bytes);
  // Closes the file. std::logic_error unless there were as many as announced.
  DocumentStartsEntry finish();

 private:
  void put(std::string_view frame);

  DocumentStartsEntry entry_;
  NewFile file_;
  FrameStreamWriter frame_;
  ContentHasher hasher_;
};

}  // namespace ql::shard
