#include "shard/lazy_shards_internal.h"

#include <algorithm>

namespace ql::shard {

namespace {

// Well below the usual limit of 1024 open files.
constexpr std::size_t kMostOpenShards = 64;
// 28 bytes each in the seek tables in memory.
constexpr std::size_t kMostKnownFrames = std::size_t{1} << 22;

}  // namespace

LazyShards::LazyShards(const PackedFolder& place, const Manifest& manifest)
    : place_(place), manifest_(manifest) {
  begins_.reserve(manifest.shards.size());
  std::int64_t begin = 0;
  for (const ShardEntry& entry : manifest.shards) {
    begins_.push_back(begin);
    begin += entry.tokens;
  }
}

std::size_t LazyShards::shard_of(std::int64_t position) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<std::size_t>(next - begins_.begin()) - 1;
}

std::shared_ptr<ShardReader> LazyShards::get(std::size_t shard) {
  const auto found = known_.find(shard);
  if (found != known_.end() && found->second->is_open()) return found->second;
  if (open_order_.size() == kMostOpenShards) {
    known_.at(open_order_.front())->close();
    open_order_.pop_front();
  }
  if (found != known_.end()) {
    // It opens itself when it is read.
    open_order_.push_back(shard);
    return found->second;
  }
  auto reader = std::make_shared<ShardReader>(place_, manifest_.shards[shard], begins_[shard],
                                              manifest_.vocabulary);
  known_.emplace(shard, reader);
  known_order_.push_back(shard);
  open_order_.push_back(shard);
  frames_ += reader->frames();
  while (frames_ > kMostKnownFrames && known_.size() > 1) forget_oldest();
  return reader;
}

void LazyShards::forget_oldest() {
  const std::size_t shard = known_order_.front();
  known_order_.pop_front();
  open_order_.erase(std::remove(open_order_.begin(), open_order_.end(), shard), open_order_.end());
  const auto found = known_.find(shard);
  frames_ -= found->second->frames();
  // Frames on their way may keep it in memory, but not its file.
  found->second->close();
  known_.erase(found);
}

void LazyShards::clear() {
  for (const auto& [shard, reader] : known_) reader->close();
  known_.clear();
  known_order_.clear();
  open_order_.clear();
  frames_ = 0;
}

}  // namespace ql::shard
