#include "shard/token_reader.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "shard/document_starts_internal.h"
#include "shard/frames_ahead_internal.h"
#include "shard/lazy_shards_internal.h"
#include "shard/manifest.h"
#include "shard/shard_reader_internal.h"

namespace ql::shard {

namespace {

constexpr std::size_t kMostCursors = std::size_t{1} << 20;
constexpr std::size_t kNoShard = SIZE_MAX;

struct CachedFrame {
  std::size_t shard = kNoShard;
  std::int64_t begin = 0;  // position of ids[0] in the data
  std::vector<TokenId> ids;
  bool holds(std::int64_t position) const {
    return shard != kNoShard && position >= begin &&
           position - begin < static_cast<std::int64_t>(ids.size());
  }
};

}  // namespace

struct TokenReader::State {
  State(const PackedFolder& place, const Manifest& manifest) : shards(place, manifest) {}

  LazyShards shards;
  FrameBuffer buffer;
  std::vector<CachedFrame> cursors;

  void load(std::int64_t position, CachedFrame& cached) {
    cached.shard = kNoShard;  // stays so when reading throws
    const std::size_t index = shards.shard_of(position);
    const std::shared_ptr<ShardReader> shard = shards.get(index);
    const std::size_t frame = shard->frame_of(position);
    shard->read_frame(frame, buffer);
    cached.ids.swap(buffer.ids);
    cached.begin = shard->frame_begin(frame);
    cached.shard = index;
  }
};

TokenReader::TokenReader(const fs::path& folder)
    : place_(find_packed_folder(folder)),
      manifest_(read_manifest(place_)),
      state_(std::make_unique<State>(place_, manifest_)) {}
TokenReader::~TokenReader() = default;

const std::vector<std::int64_t>& TokenReader::document_starts() const {
  if (!document_starts_) document_starts_ = read_document_starts(place_, manifest_);
  return *document_starts_;
}

std::int64_t TokenReader::frame_bytes() const {
  if (tokens() == 0) return 0;
  const std::shared_ptr<ShardReader> shard = state_->shards.get(state_->shards.shard_of(0));
  const std::size_t frame = shard->frame_of(0);
  return (shard->frame_end(frame) - shard->frame_begin(frame)) *
         static_cast<std::int64_t>(sizeof(TokenId));
}

void TokenReader::read(std::int64_t begin, std::int64_t count, std::int64_t* out,
                       std::size_t cursor) {
  State& state = *state_;
  if (begin < 0 || count < 0 || begin > tokens() - count) {
    throw std::out_of_range(
        fmt::format("{}: {} tokens from {} on asked of {}", name(), count, begin, tokens()));
  }
  if (cursor >= kMostCursors) throw std::out_of_range(fmt::format("cursor {}", cursor));
  if (cursor >= state.cursors.size()) state.cursors.resize(cursor + 1);
  CachedFrame& cached = state.cursors[cursor];
  while (count > 0) {
    if (!cached.holds(begin)) state.load(begin, cached);
    const std::int64_t offset = begin - cached.begin;
    const std::int64_t part =
        std::min(count, static_cast<std::int64_t>(cached.ids.size()) - offset);
    std::copy_n(cached.ids.begin() + offset, part, out);
    out += part;
    begin += part;
    count -= part;
  }
}

void TokenReader::read_in_order(std::int64_t begin, std::int64_t end, int threads,
                                const UseIds& use) {
  State& state = *state_;
  if (begin < 0 || end < begin || end > tokens()) {
    throw std::out_of_range(
        fmt::format("{}: tokens {} to {} asked of {}", name(), begin, end, tokens()));
  }
  FramesAhead frames(threads);
  const auto use_first = [&] {
    FramesAhead::Frame frame = frames.take();
    const auto size = static_cast<std::int64_t>(frame.ids().size());
    const std::int64_t from = std::max(begin, frame.begin);
    const std::int64_t to = std::min(end, frame.begin + size);
    use(frame.ids().data() + (from - frame.begin), static_cast<std::size_t>(to - from));
    frames.give_back(std::move(frame));
  };
  for (std::int64_t position = begin; position < end;) {
    std::shared_ptr<ShardReader> shard;
    try {
      shard = state.shards.get(state.shards.shard_of(position));
    } catch (const Error&) {
      // The caller first gets all tokens before the bad shard.
      while (!frames.empty()) use_first();
      throw;
    }
    const std::size_t frame = shard->frame_of(position);
    frames.add(shard, frame);
    position = shard->frame_end(frame);
    while (frames.full()) use_first();
  }
  while (!frames.empty()) use_first();
}

void TokenReader::close_files() {
  State& state = *state_;
  state.shards.clear();
  state.cursors.clear();
}

}  // namespace ql::shard
