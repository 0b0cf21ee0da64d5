// Implements reading by cursors and decoding ahead, with a limited number of open shards.

#include "shard/token_reader.h"

#include <exception>
#include <unordered_map>

#include "base/log.h"

namespace ql::shard {

// This is well below the usual limit of 1024 open files.
constexpr std::size_t kMostOpenShards = 64;
// A frame takes 28 bytes in the seek tables in memory.
constexpr std::size_t kMostKnownFrames = std::size_t{1} << 22;
constexpr std::size_t kMostCursors = std::size_t{1} << 20;

void FramesAhead::add(const std::shared_ptr<ShardReader>& shard, std::size_t frame) {
  if (idle_.empty()) idle_.push_back(std::make_shared<FrameBuffer>());
  const std::shared_ptr<FrameBuffer> buffer = std::move(idle_.back());
  idle_.pop_back();
  // An error in reading a frame must not hide the frames before it, which are still in progress.
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

struct TokenReader::State {
  struct CachedFrame {
    std::int64_t begin = 0;  // position of ids[0] in the data
    std::vector<TokenId> ids;
    bool holds(std::int64_t position) const {
      return position >= begin && position - begin < static_cast<std::int64_t>(ids.size());
    }
  };

  // Opens no file. Both arguments must outlive this object.
  State(const PackedFolder& its_place, const Manifest& its_manifest)
      : place(its_place), manifest(its_manifest) {
    begins.reserve(manifest.shards.size());
    std::int64_t begin = 0;
    for (const FileEntry& entry : manifest.shards) {
      begins.push_back(begin);
      begin += entry.tokens;
    }
  }

  const PackedFolder& place;
  const Manifest& manifest;
  std::vector<std::int64_t> begins;  // position of each shard's first token
  std::unordered_map<std::size_t, std::shared_ptr<ShardReader>> known;
  std::deque<std::shared_ptr<ShardReader>> open;  // oldest first
  std::size_t frames = 0;                         // in the known shards
  FrameBuffer buffer;
  std::vector<CachedFrame> cursors;

  // Returns the shard that holds a position of the data. Throws the errors of ShardReader. The most
  // recently opened shards stay open. The seek tables of all shards that were used stay in memory,
  // until they are too many.
  std::shared_ptr<ShardReader> shard_at(std::int64_t position) {
    const auto next = std::upper_bound(begins.begin(), begins.end(), position);
    const auto shard = static_cast<std::size_t>(next - begins.begin()) - 1;
    auto found = known.find(shard);
    if (found != known.end() && found->second->is_open()) return found->second;
    if (open.size() == kMostOpenShards) {
      open.front()->close();
      open.pop_front();
    }
    if (found == known.end()) {
      auto reader = std::make_shared<ShardReader>(place, manifest.shards[shard], begins[shard],
                                                  manifest.vocabulary);
      if (frames + reader->frames() > kMostKnownFrames) close_shards();
      frames += reader->frames();
      found = known.emplace(shard, std::move(reader)).first;
    }
    // The shard opens its file when it is read.
    open.push_back(found->second);
    return found->second;
  }

  // Closes all shards and drops their seek tables.
  void close_shards() {
    // Frames in progress may keep a shard in memory, but not its open file.
    for (const auto& [shard, reader] : known) reader->close();
    known.clear();
    open.clear();
    frames = 0;
  }

  void load(std::int64_t position, CachedFrame& cached) {
    cached.ids.clear();  // remains so when reading throws
    const std::shared_ptr<ShardReader> shard = shard_at(position);
    const std::size_t frame = shard->frame_of(position);
    shard->read_frame(frame, buffer);
    cached.ids.swap(buffer.ids);
    cached.begin = shard->frame_begin(frame);
  }
};

TokenReader::TokenReader(const fs::path& folder)
    : place_(find_packed_folder(folder)),
      manifest_(read_manifest(place_)),
      state_(std::make_unique<State>(place_, manifest_)) {}
TokenReader::~TokenReader() = default;

std::int64_t TokenReader::frame_bytes() const {
  if (tokens() == 0) return 0;
  const std::shared_ptr<ShardReader> shard = state_->shard_at(0);
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
  State::CachedFrame& cached = state.cursors[cursor];
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
      shard = state.shard_at(position);
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
  state_->close_shards();
  state_->cursors.clear();
}

}  // namespace ql::shard
