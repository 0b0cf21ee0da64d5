// Frames of shards in the order in which they are asked for, decoded ahead by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/ordered_jobs.h"
#include "shard/shard_reader_internal.h"

namespace ql::shard {

// Used as OrderedJobs is: where frames are so large that those on their way would fill the memory,
// fewer are.
class FramesAhead {
 public:
  explicit FramesAhead(int threads) : jobs_(threads) {}

  // The caller's thread reads the frame from its file. What goes wrong is thrown by take(). The
  // shard may be closed before that.
  void add(const std::shared_ptr<ShardReader>& shard, std::size_t frame);
  bool full() const { return jobs_.full(); }
  bool empty() const { return jobs_.empty(); }

  struct Frame {
    std::int64_t begin = 0;  // position of ids[0] in the data
    const std::vector<TokenId>& ids() const { return buffer->ids; }
    std::shared_ptr<FrameBuffer> buffer;
  };
  // The oldest frame. Throws what ShardReader::read_frame throws; then the next call goes on with
  // the next frame.
  Frame take() { return jobs_.take(); }
  // For its memory, when its ids are not needed any more.
  void give_back(Frame frame) { idle_.push_back(std::move(frame.buffer)); }

 private:
  std::vector<std::shared_ptr<FrameBuffer>> idle_;
  OrderedJobs<Frame> jobs_;
};

}  // namespace ql::shard
