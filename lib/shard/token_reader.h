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

// Reads a packed folder at any place. The constructor opens the manifest only. Each shard is
// opened, and checked against the manifest, when its first token is read, so the number of shards
// does not matter. One object serves one thread; several cursors may read far apart (each keeps its
// own frame). Every error is a FormatError or SystemError that names the file.
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
  // Returns the identity of the data: a hash of all ids and document starts, for any compression.
  const std::string& hash() const { return manifest_.data_hash; }

  // Copies tokens [begin, begin + count) to `out`. `cursor` is one of several independent readers,
  // each of which caches its last frame; batch row b uses cursor b. Throws FormatError on damage
  // and std::out_of_range outside the data. Memory: a decoded frame for each cursor from 0 to the
  // highest one used.
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out, std::size_t cursor = 0);
  // Returns the bytes of a decoded frame: those of the first one, since no other is larger. Opens
  // its shard.
  std::int64_t frame_bytes();
  // Calls use(ids, count) for tokens [begin, end) in order, a part of a frame at a time, while
  // `threads` threads decode the following frames. Throws the errors of read(), after all tokens
  // before the damage have been used. Memory: two frames for each thread, fewer where they are
  // large.
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
  std::size_t frames_ = 0;                         // in the known shards
  FrameBuffer buffer_;
  std::vector<CachedFrame> cursors_;
};

// Decodes frames of shards with several threads ahead of their use. The results come in order.

// It is used like OrderedJobs. If frames are large, fewer of them are decoded ahead, so that they
// do not fill the memory.
class FramesAhead {
 public:
  explicit FramesAhead(int threads) : jobs_(threads) {}

  // The caller's thread reads the frame from its file. An error is thrown by take(). The shard may
  // be closed before that.
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
  // Takes a frame back for its memory when its ids are not needed any more.
  void give_back(Frame frame) { idle_.push_back(std::move(frame.buffer)); }

 private:
  std::vector<std::shared_ptr<FrameBuffer>> idle_;
  OrderedJobs<Frame> jobs_;
};

}  // namespace ql::shard
