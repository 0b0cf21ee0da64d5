// Reads tokens at any position of a packed folder, decodes frames ahead of their use, and limits
// the number of open shards.

#include "shard/token_reader.h"

#include <exception>

namespace ql::shard {

// This is well below the usual limit of 1024 open files.
constexpr std::size_t kMostOpenShards = 64;
// This limits the seek tables in memory, in which a frame takes 28 bytes.
constexpr std::size_t kMostKnownFrames = std::size_t{1} << 22;

void FramesAhead::add(const std::shared_ptr<ShardReader>& shard, std::size_t frame) {
  if (idle_.empty()) idle_.push_back(std::make_shared<FrameBuffer>());
  const std::shared_ptr<FrameBuffer> buffer = std::move(idle_.back());
  idle_.pop_back();
  // If the frame cannot be read, the job throws the error, so that take() first returns the earlier
  // frames, which are still in progress.
  std::exception_ptr unreadable;
  try {
    shard->load_frame(frame, *buffer);
  } catch (const Error&) {
    unreadable = std::current_exception();
  }
  jobs_.add(
      [shard, frame, buffer, unreadable] {
        if (unreadable) std::rethrow_exception(unreadable);
        shard->decode_frame(frame, *buffer);
        return Frame{shard->frame_begin(frame), buffer};
      },
      shard->frame_memory(frame));
}

TokenReader::TokenReader(const fs::path& folder)
    : place_(find_packed_folder(folder)), manifest_(read_manifest(place_)) {
  begins_.reserve(manifest_.shards.size());
  std::int64_t begin = 0;
  for (const FileEntry& entry : manifest_.shards) {
    begins_.push_back(begin);
    begin += entry.tokens;
  }
}

// Returns the shard that holds a position of the data. Throws the errors of ShardReader. The most
// recently opened shards stay open. The seek tables of all used shards stay in memory. Before the
// tables would list more than kMostKnownFrames frames, close_shards() closes all shards and drops
// all tables.
std::shared_ptr<ShardReader> TokenReader::shard_at(std::int64_t position) {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), position);
  const auto shard = static_cast<std::size_t>(next - begins_.begin()) - 1;
  auto found = known_.find(shard);
  if (found != known_.end() && found->second->is_open()) return found->second;
  if (open_.size() == kMostOpenShards) {
    open_.front()->close();
    open_.pop_front();
  }
  if (found == known_.end()) {
    auto reader = std::make_shared<ShardReader>(place_, manifest_.shards[shard], begins_[shard],
                                                manifest_.vocabulary);
    if (frames_ + reader->frames() > kMostKnownFrames) close_shards();
    frames_ += reader->frames();
    found = known_.emplace(shard, std::move(reader)).first;
  }
  // A closed shard opens its file again when it is read.
  open_.push_back(found->second);
  return found->second;
}

// Closes all shards and drops their seek tables.
void TokenReader::close_shards() {
  // Frames in progress may keep a ShardReader in memory, so its file is closed here.
  for (const auto& [shard, reader] : known_) reader->close();
  known_.clear();
  open_.clear();
  frames_ = 0;
}

// Loads the frame that holds a position, unless it is the cached one.
void TokenReader::load(std::int64_t position, CachedFrame& cached) {
  const std::int64_t offset = position - cached.begin;
  if (offset >= 0 && offset < static_cast<std::int64_t>(cached.ids.size())) return;
  cached.ids.clear();  // stays empty if reading throws
  const std::shared_ptr<ShardReader> shard = shard_at(position);
  const std::size_t frame = shard->frame_of(position);
  shard->load_frame(frame, buffer_);
  shard->decode_frame(frame, buffer_);
  cached.ids.swap(buffer_.ids);
  cached.begin = shard->frame_begin(frame);
}

std::int64_t TokenReader::frame_bytes() {
  if (tokens() == 0) return 0;
  const std::shared_ptr<ShardReader> shard = shard_at(0);
  return (shard->frame_end(0) - shard->frame_begin(0)) * static_cast<std::int64_t>(sizeof(TokenId));
}

void TokenReader::read(std::int64_t begin, std::int64_t count, std::int64_t* out,
                       std::size_t cursor) {
  if (begin < 0 || count < 0 || begin > tokens() - count) {
    throw std::out_of_range(
        fmt::format("{}: {} tokens from {} on asked of {}", name(), count, begin, tokens()));
  }
  if (cursor >= kMostCursors) throw std::out_of_range(fmt::format("cursor {}", cursor));
  if (cursor >= cursors_.size()) cursors_.resize(cursor + 1);
  CachedFrame& cached = cursors_[cursor];
  while (count > 0) {
    load(begin, cached);
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
      shard = shard_at(position);
    } catch (const Error&) {
      // The caller gets all tokens before the bad shard first.
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
  close_shards();
  cursors_.clear();
}

}  // namespace ql::shard
