#include "shard/lazy_shards_internal.h"

#include <algorithm>
#include <utility>

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
  auto found = known_.find(shard);
  if (found != known_.end() && found->second->is_open()) return found->second;
  if (open_.size() == kMostOpenShards) {
    open_.front()->close();
    open_.pop_front();
  }
  if (found == known_.end()) {
    auto reader = std::make_shared<ShardReader>(place_, manifest_.shards[shard], begins_[shard],
                                                manifest_.vocabulary);
    if (frames_ + reader->frames() > kMostKnownFrames) clear();
    frames_ += reader->frames();
    found = known_.emplace(shard, std::move(reader)).first;
  }
  // It opens itself when it is read.
  open_.push_back(found->second);
  return found->second;
}

void LazyShards::clear() {
  // Frames on their way may keep a shard in memory, but not its file.
  for (const auto& [shard, reader] : known_) reader->close();
  known_.clear();
  open_.clear();
  frames_ = 0;
}

}  // namespace ql::shard
