// Reads tokens anywhere in a packed folder. See ql-manifest(5), ql-shard(5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/jobs.h"
#include "shard/packed_folder.h"
#include "shard/shard.h"

namespace ql::shard {

constexpr std::size_t kMostCursors = std::size_t{1} << 20;

// Reads a packed folder at any position. The constructor opens the manifest only. A shard is
// opened, and checked against the manifest, when a token of this shard is first read, so opening a
// folder takes no longer for many shards. Only one thread may use an object. This thread may read
// at several distant positions in turn, each by its own cursor, as read() describes. Every error in
// a file is a FormatError or SystemError that names the file.
class TokenReader {
 public:
  // `folder` holds manifest.json. The manifest's own path is accepted, too.
  explicit TokenReader(const std::filesystem::path& folder);
  TokenReader(TokenReader&&) = delete;

  std::int64_t tokens() const { return manifest_.tokens; }
  std::int64_t documents() const { return manifest_.documents; }
  const VocabularyInfo& vocabulary() const { return manifest_.vocabulary; }
  const std::optional<TextCounts>& counts() const { return manifest_.counts; }
  // Returns the text of the vocabulary's file in the folder, or "" if there is none.
  std::string vocabulary_text() const { return read_vocabulary_text(place_, manifest_); }
  const std::string& name() const { return place_.name; }  // the folder as given: for messages
  const Manifest& manifest() const { return manifest_; }
  const PackedFolder& place() const { return place_; }
  // Returns the hash that identifies the data. It covers all ids and document starts, and does not
  // depend on the compression.
  const std::string& hash() const { return manifest_.data_hash; }

  // Copies tokens [begin, begin + count) to `out`. `cursor` is the number of a cursor. Each cursor
  // caches the frame that it read last; row b of a batch uses cursor b. Throws FormatError on
  // damage and std::out_of_range outside the data. Memory holds one decoded frame for each cursor
  // that was used.
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor = 0);
  // Returns how many bytes of memory the ids of a cursor's cached frame take. The first frame is
  // measured, because qlbin pack makes no other frame larger. Opens the first shard.
  std::int64_t frame_bytes();
  // Calls use(ids, count) for tokens [begin, end) in order, with at most one frame per call, while
  // `threads` threads decode the following frames. Throws the errors of read(), after all tokens
  // before the damage have been used. Memory holds two frames for each thread, or fewer if the
  // frames are large.
  using UseIds = std::function<void(const TokenId* ids, std::size_t count)>;
  void read_in_order(std::int64_t begin, std::int64_t end, int threads, const UseIds& use);
  // Closes the shards and drops the decoded frames; the next read() opens the files that it needs.
  void close_files();

 private:
  struct CachedFrame {
    std::int64_t begin = 0;  // position of ids[0] in the data
    std::vector<TokenId> ids;
  };

  std::shared_ptr<ShardReader> shard_at(std::int64_t position);
  void load(std::int64_t position, CachedFrame& cached);
  void close_shards();

  PackedFolder place_;
  Manifest manifest_;
  std::vector<std::int64_t> begins_;  // position of each shard's first token
  std::unordered_map<std::size_t, std::shared_ptr<ShardReader>> known_;
  std::deque<std::shared_ptr<ShardReader>> open_;  // oldest first
  std::size_t frames_ = 0;                         // in all shards of known_
  FrameBuffer buffer_;
  std::vector<CachedFrame> cursors_;
};

// FramesAhead decodes frames of shards with several threads before they are used. take() returns
// the frames in the order of add().

// FramesAhead is used like OrderedJobs (base/jobs.h). If frames are large, fewer frames are decoded
// ahead, which limits the memory.
class FramesAhead {
 public:
  explicit FramesAhead(int threads) : jobs_(threads) {}

  // Reads the frame from its file in the caller's thread. If this fails, take() throws the error.
  // The shard may be closed after add().
  void add(const std::shared_ptr<ShardReader>& shard, std::size_t frame);
  bool full() const { return jobs_.full(); }
  bool empty() const { return jobs_.empty(); }

  struct Frame {
    std::int64_t begin = 0;  // position of ids[0] in the data
    const std::vector<TokenId>& ids() const { return buffer->ids; }
    std::shared_ptr<FrameBuffer> buffer;
  };
  // Returns the oldest frame. Throws the errors of reading and decoding it; the next call then
  // continues with the next frame.
  Frame take() { return jobs_.take(); }
  // Reuses the memory of a frame whose ids are not needed any more.
  void give_back(Frame frame) { idle_.push_back(std::move(frame.buffer)); }

 private:
  std::vector<std::shared_ptr<FrameBuffer>> idle_;
  OrderedJobs<Frame> jobs_;
};

}  // namespace ql::shard
