// Implements packing: several threads compress frames, one writes them in order.

#include "shard/pack_writer.h"

#include "base/bytes.h"
#include "base/jobs.h"
#include "shard/document_starts.h"
#include "shard/shard.h"

namespace ql::shard {

namespace {

void check_sizes(const PackOptions& options, int bytes_per_id) {
  const std::int64_t largest = kLargestFrameBytes / bytes_per_id;
  if (options.frame_tokens < 1 || options.frame_tokens > largest) {
    throw UsageError(
        "", fmt::format("{} tokens in a frame, expected 1 to {}", options.frame_tokens, largest));
  }
  if (options.shard_tokens < 1) throw UsageError("", "a shard needs at least one token");
  const std::int64_t frames = (options.shard_tokens - 1) / options.frame_tokens + 1;
  if (frames > kMostFrames) {
    throw UsageError("",
                     fmt::format("{} tokens in a shard make {} frames of {}, but a shard can "
                                 "hold only {}",
                                 options.shard_tokens, frames, options.frame_tokens, kMostFrames),
                     "use smaller shards or larger frames");
  }
}

struct PackedFrame {
  std::string content;  // ids as bytes
  std::string frame;    // compressed
};

}  // namespace

struct PackWriter::State {
  State(const fs::path& target, const StreamHeader& the_header, const PackOptions& the_options)
      : header(the_header),
        options(the_options),
        bytes_per_id(the_header.vocabulary.bytes_per_id()),
        level(the_options.level.value_or(default_level(the_header.vocabulary.size))),
        pack(target, the_options.force),
        document_starts(pack),
        jobs(the_options.threads) {}

  StreamHeader header;
  PackOptions options;
  int bytes_per_id;
  int level;
  NewPack pack;
  SpooledStarts document_starts;
  std::unique_ptr<ShardWriter> shard;
  std::int64_t tokens_in_shard = 0;  // in frames that the threads have got
  std::int64_t tokens_in_file = 0;   // those of them that are in the shard's file
  std::string frame;                 // ids as bytes
  bool document_begins = true;
  bool finished = false;
  ContentHasher data_hasher;
  Manifest manifest;
  ObjectPool<FrameCompressor> compressors;
  OrderedJobs<PackedFrame> jobs;

  // Returns how many tokens fit before the frame or the shard is full.
  std::int64_t room() const {
    const auto in_frame = static_cast<std::int64_t>(frame.size()) / bytes_per_id;
    return std::min(options.frame_tokens - in_frame,
                    options.shard_tokens - tokens_in_shard - in_frame);
  }

  void append(const TokenId* ids, std::size_t count) {
    if (document_begins) {
      document_starts.add(manifest.tokens);
      document_begins = false;
    }
    append_ids(frame, ids, count, bytes_per_id);
    manifest.tokens += static_cast<std::int64_t>(count);
    if (room() == 0) write_frame();
  }

  // Passes the full frame to the threads that compress.
  void write_frame() {
    if (frame.empty()) return;
    tokens_in_shard += static_cast<std::int64_t>(frame.size()) / bytes_per_id;
    if (tokens_in_shard == options.shard_tokens) tokens_in_shard = 0;
    const std::size_t bytes = 2 * frame.size();  // as content and compressed
    jobs.add(
        [this, content = std::move(frame)]() mutable {
          auto compressor = compressors.take(
              [this] { return std::make_unique<FrameCompressor>(level, bytes_per_id); });
          std::string packed = compressor->compress(content);
          compressors.give_back(std::move(compressor));
          return PackedFrame{std::move(content), std::move(packed)};
        },
        bytes);
    frame = std::string();
    while (jobs.full()) write_to_file(jobs.take());
  }

  void write_to_file(const PackedFrame& packed) {
    if (!shard) {
      shard = std::make_unique<ShardWriter>(pack, manifest.shards.size());
    }
    shard->write_frame(packed.frame, packed.content.size());
    data_hasher.update(packed.content.data(), packed.content.size());
    tokens_in_file += static_cast<std::int64_t>(packed.content.size()) / bytes_per_id;
    if (tokens_in_file == options.shard_tokens) finish_shard();
  }

  void write_pending_frames() {
    write_frame();
    while (!jobs.empty()) write_to_file(jobs.take());
  }

  void finish_shard() {
    if (!shard) return;
    manifest.shards.push_back(shard->finish(bytes_per_id));
    shard.reset();
    tokens_in_file = 0;
  }

  void write_document_starts() {
    manifest.documents = document_starts.count();
    DocumentStartsWriter writer(pack.create(kDocumentStartsFile), manifest.documents, level);
    document_starts.take([&](std::string_view bytes) {
      data_hasher.update(bytes.data(), bytes.size());
      writer.write(bytes);
    });
    manifest.document_starts = writer.finish();
  }
};

int default_level(std::int64_t vocabulary_size) { return vocabulary_size > 1024 ? 0 : 1; }

PackWriter::PackWriter(const fs::path& folder, const StreamHeader& header,
                       const PackOptions& options) {
  check_sizes(options, header.vocabulary.bytes_per_id());
  state_ = std::make_unique<State>(folder, header, options);
}

PackWriter::~PackWriter() = default;

void PackWriter::begin_document() { state_->document_begins = true; }

void PackWriter::write(const TokenId* ids, std::size_t count) {
  State& state = *state_;
  if (state.finished) throw std::logic_error("packed folder written after its end");
  if (first_id_outside(ids, count, state.header.vocabulary.size) >= 0) {
    throw std::logic_error("token id outside the vocabulary");
  }
  while (count > 0) {
    const std::size_t part = std::min(count, static_cast<std::size_t>(state.room()));
    state.append(ids, part);
    ids += part;
    count -= part;
  }
}

void PackWriter::keep_unknown(const Json& unknown) { state_->manifest.unknown = unknown; }

void PackWriter::finish(const std::optional<TextCounts>& counts) {
  State& state = *state_;
  if (state.finished) throw std::logic_error("packed folder finished twice");
  state.finished = true;
  state.write_pending_frames();
  state.finish_shard();
  state.write_document_starts();
  Manifest& manifest = state.manifest;
  manifest.vocabulary = state.header.vocabulary;
  manifest.counts = counts;
  manifest.data_hash = state.data_hasher.digest();
  manifest.provenance = state.header.provenance;
  state.pack.write_vocabulary(state.header.vocabulary_text, manifest);
  state.pack.finish(manifest);
}

const Manifest& PackWriter::manifest() const { return state_->manifest; }

}  // namespace ql::shard
