// Reads and writes the file documents.zst, and finds a token's position in its document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "shard/packed_folder.h"
#include "shard/shard.h"
#include "shard/zstd_frame.h"

namespace ql::shard {

// Returns the number of tokens before token `position` in its document. `starts` are the ascending
// positions where documents start. Tokens before the first start form a document, too.
std::int64_t document_offset(const std::vector<std::int64_t>& starts, std::int64_t position);

// Computes document_offset() for a stream while the stream is read. A stream may have any length,
// so starts that are not needed any more are dropped.
class DocumentOffsets {
 public:
  // Adds a document that starts at `position`. Positions ascend. A start must be added before
  // offset() is called for its position or for a later one.
  void put_start(std::int64_t position) { ahead_.push_back(position); }
  // Returns the number of tokens before token `position` in its document. Positions ascend.
  std::int64_t offset(std::int64_t position);
  // Returns the first start after the last position given to offset(), if one is known.
  std::optional<std::int64_t> next_start() const;

 private:
  std::int64_t start_ = 0;  // start of the document that offset() saw last
  std::deque<std::int64_t> ahead_;
};

// documents.zst holds the positions where documents start (ql-manifest(5)).

constexpr const char* kDocumentStartsFile = "documents.zst";

// Reads the starts in order, piece by piece, because the machine's memory may be too small for all
// starts.
class DocumentStartsReader {
 public:
  static constexpr std::int64_t kNone = INT64_MAX;
  // Begins with the first start at or after token `position`. Throws FormatError unless the file
  // has the size and hash that the manifest states. `manifest` must outlive this object.
  DocumentStartsReader(const PackedFolder& place, const Manifest& manifest,
                       std::int64_t position = 0);
  // Returns true when all starts have been passed.
  bool ended() const { return at_ == starts_.size(); }
  // Returns the position where the next document starts, or kNone after the last.
  std::int64_t next() const { return ended() ? kNone : starts_[at_]; }
  // Moves on to the next start; must not be called when ended() is true. Like the constructor,
  // throws FormatError unless the starts ascend strictly from 0 and are below the number of tokens.
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
  std::int64_t documents_ = 0, last_ = -1;  // number of starts read until now, and the last of them
};

// A StartsSink takes starts in the form of the file's decompressed content: little-endian u64.
using StartsSink = std::function<void(std::string_view bytes)>;

// Passes all starts to `sink` in pieces, each start increased by `before`.
void for_each_piece_of_starts(const PackedFolder& place, const Manifest& manifest,
                              std::int64_t before, const StartsSink& sink);

// Writes the file piece by piece: send_all(sink) has to pass all starts to `sink`. `level` has the
// meaning that FrameStreamWriter gives it. Throws Error unless the number of starts is `documents`.
FileEntry write_document_starts(std::unique_ptr<NewFile> file, std::int64_t documents, int level,
                                const std::function<void(const StartsSink& sink)>& send_all);

// Collects document starts whose number is not known yet. The first bytes of documents.zst state
// the size of its content, so an uncompressed temporary file keeps the starts until the last one is
// known. Only one piece is held in memory.
class SpooledStarts {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

  // When the first piece is full, add() creates the temporary file in `folder`, which must outlive
  // this object.
  explicit SpooledStarts(const NewFolder& folder) : folder_(folder) {}

  void add(std::int64_t start);
  std::int64_t count() const { return count_; }
  std::size_t bytes_in_memory() const { return piece_.size(); }

  // Passes all starts to `sink` in order, and removes the temporary file. Nothing can be added
  // afterwards.
  void take(const StartsSink& sink);

 private:
  void write_piece();

  const NewFolder& folder_;
  std::string piece_;
  std::unique_ptr<NewFile> file_;
  std::int64_t count_ = 0;
};

}  // namespace ql::shard
