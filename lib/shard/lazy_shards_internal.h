// The shards of a folder, opened when they are read: there may be a hundred thousand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "shard/manifest.h"
#include "shard/shard_reader_internal.h"

namespace ql::shard {

class LazyShards {
 public:
  // Looks at no file. Both must outlive this object.
  LazyShards(const PackedFolder& place, const Manifest& manifest);

  // The shard that holds a position of the data.
  std::size_t shard_of(std::int64_t position) const;
  // Throws what ShardReader throws. The shards opened last stay open, and the seek tables of more
  // of them in memory: all that were asked for, until there are too many.
  std::shared_ptr<ShardReader> get(std::size_t shard);
  // Closes and forgets all.
  void clear();

 private:
  const PackedFolder& place_;
  const Manifest& manifest_;
  std::vector<std::int64_t> begins_;  // position of each shard's first token
  std::unordered_map<std::size_t, std::shared_ptr<ShardReader>> known_;
  std::deque<std::shared_ptr<ShardReader>> open_;  // oldest first
  std::size_t frames_ = 0;                         // of the known shards
};

}  // namespace ql::shard
