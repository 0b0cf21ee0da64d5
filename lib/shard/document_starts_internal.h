// documents.zst: the positions where documents start, see ql-manifest(5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/random_access_file.h"
#include "shard/manifest.h"
#include "shard/zstd_frame_internal.h"

namespace ql::shard {

constexpr const char* kDocumentStartsFile = "documents.zst";

// The starts as the file's content holds them: little-endian u64.
std::string encode_document_starts(const std::vector<std::int64_t>& starts);

// Walks along the starts in their order. Memory holds a piece of them: there may be more than fit.
class DocumentStartsReader {
 public:
  static constexpr std::int64_t kNone = INT64_MAX;
  // Begins with the first start at token `position` or behind it. Throws FormatError unless the
  // file has the size and hash that the manifest says. `manifest` must outlive this object.
  DocumentStartsReader(const PackedFolder& place, const Manifest& manifest,
                       std::int64_t position = 0);
  // Tells whether all starts have been passed.
  bool ended() const { return at_ == starts_.size(); }
  // Returns where the next document starts; kNone behind the last.
  std::int64_t next() const { return ended() ? kNone : starts_[at_]; }
  // Passes next(), before the end. Throws FormatError for starts that are not strictly
  // ascending from 0 and below the number of tokens.
  void pass() {
    ++at_;
    if (ended()) read_piece();
  }

 private:
  void read_piece();

  std::string name_;
  const Manifest& manifest_;
  RandomAccessFile file_;
  std::optional<FrameStreamReader> frame_;
  std::string bytes_;
  std::vector<std::int64_t> starts_;
  std::size_t at_ = 0;
  std::int64_t documents_ = 0, last_ = -1;  // read so far, and the start of the last of them
};

// Calls use(bytes) with all starts, `before` added to each, as encode_document_starts() makes them.
void for_each_piece_of_starts(const PackedFolder& place, const Manifest& manifest,
                              std::int64_t before,
                              const std::function<void(std::string_view bytes)>& use);

// All of them, in 8 bytes each.
std::vector<std::int64_t> read_document_starts(const PackedFolder& place, const Manifest& manifest);

// Writes the file a piece at a time.
class DocumentStartsWriter {
 public:
  // `level` as of FrameCompressor.
  DocumentStartsWriter(std::unique_ptr<NewFile> file, std::int64_t documents, int level);
  // Starts as encode_document_starts() makes them.
  void write(std::string_view bytes) { put(frame_.compress(bytes, false)); }
  // Closes the file. Throws Error unless there were as many as announced.
  DocumentStartsEntry finish();

 private:
  void put(std::string_view frame);

  DocumentStartsEntry entry_;
  std::unique_ptr<NewFile> file_;
  FrameStreamWriter frame_;
  ContentHasher hasher_;
};

}  // namespace ql::shard
