// Implements packing: several threads compress frames, and one thread writes the frames in order.

#include "shard/pack_writer.h"

#include "base/log.h"
#include "base/process.h"

namespace ql::shard {

int default_level(std::int64_t vocabulary_size) { return vocabulary_size > 1024 ? 0 : 1; }

NewPack::NewPack(const fs::path& folder, StreamHeader header, const PackOptions& options)
    : NewFolder(check_pack_target(folder, options.force)),
      header_(std::move(header)),
      options_(options) {}

void NewPack::finish(Manifest& manifest,
                     const std::function<void(const StartsSink& sink)>& send_starts) {
  const auto send_all = [&](const StartsSink& sink) {
    send_starts([&](std::string_view bytes) {
      hash(bytes);
      sink(bytes);
    });
  };
  manifest.document_starts =
      write_document_starts(create(kDocumentStartsFile), manifest.documents, level(), send_all);
  manifest.vocabulary = header_.vocabulary;
  manifest.data_hash = hasher_.digest();
  manifest.provenance = header_.provenance;
  if (const std::string& text = header_.vocabulary_text; !text.empty()) {
    manifest.vocabulary_file = VocabularyFileEntry{
        kVocabularyFile, static_cast<std::int64_t>(text.size()), content_hash(text)};
    write_file(kVocabularyFile, text);
  }
  const Json json = manifest_to_json(manifest);
  manifest.checksum = json["checksum"].get<std::string>();
  const std::string text = dump_json(json);
  if (static_cast<std::int64_t>(text.size()) > kLargestManifest) {
    throw Error(path().string(),
                fmt::format("the manifest of {} bytes for {} shards exceeds the limit of {} bytes",
                            text.size(), manifest.shards.size(), kLargestManifest),
                "use larger shards: --shard-tokens");
  }
  // This call throws for a manifest that readers would refuse. So the error comes before the user
  // deletes the sources of the packed data.
  manifest_from_json(json, (path() / "manifest.json").string());
  write_file("manifest.json", text);
  sync();
  check_for_stop();  // sync() may take minutes, and the old folder is still there
  // The target is checked again just before commit(): somebody may have put files there meanwhile.
  check_pack_target(path(), options_.force);
  commit(options_.force);
}

void NewPack::write_file(const std::string& file, const std::string& content) const {
  const auto output = create(file);
  output->write(content.data(), content.size());
  output->close();
}

static const PackOptions& checked(const PackOptions& options, int bytes_per_id) {
  const std::int64_t largest = kLargestFrameBytes / bytes_per_id;
  if (options.frame_tokens < 1 || options.frame_tokens > largest) {
    throw UsageError("--frame-tokens",
                     fmt::format("{} tokens in a frame, expected 1 to {} for ids of {} bytes",
                                 options.frame_tokens, largest, bytes_per_id));
  }
  if (options.shard_tokens < 1) throw UsageError("", "a shard needs at least one token");
  const std::int64_t frames = (options.shard_tokens - 1) / options.frame_tokens + 1;
  if (frames > kMostFrames) {
    throw UsageError("",
                     fmt::format("{} tokens in a shard make {} frames with --frame-tokens {}, but "
                                 "a shard can hold only {} frames",
                                 options.shard_tokens, frames, options.frame_tokens, kMostFrames),
                     "use smaller shards (--shard-tokens) or larger frames (--frame-tokens)");
  }
  return options;
}

PackWriter::PackWriter(const fs::path& folder, const StreamHeader& header,
                       const PackOptions& options)
    : options_(checked(options, header.vocabulary.bytes_per_id())),
      bytes_per_id_(header.vocabulary.bytes_per_id()),
      pack_(folder, header, options),
      document_starts_(pack_),
      jobs_(options.threads) {}

// Returns how many tokens fit before the frame or the shard is full.
std::int64_t PackWriter::room() const {
  const auto in_frame = static_cast<std::int64_t>(frame_.size()) / bytes_per_id_;
  return std::min(options_.frame_tokens - in_frame,
                  options_.shard_tokens - tokens_in_shard_ - in_frame);
}

void PackWriter::write(const TokenId* ids, std::size_t count) {
  if (finished_) throw std::logic_error("packed folder written after its end");
  if (first_id_outside(ids, count, pack_.header().vocabulary.size) >= 0) {
    throw std::logic_error("token id outside the vocabulary");
  }
  while (count > 0) {
    if (document_begins_) document_starts_.add(manifest_.tokens);
    document_begins_ = false;
    const std::size_t part = std::min(count, static_cast<std::size_t>(room()));
    append_ids(frame_, ids, part, bytes_per_id_);
    manifest_.tokens += static_cast<std::int64_t>(part);
    ids += part;
    count -= part;
    if (room() == 0) write_frame();
  }
}

// Passes the current frame, if not empty, to the compressing threads.
void PackWriter::write_frame() {
  if (frame_.empty()) return;
  tokens_in_shard_ += static_cast<std::int64_t>(frame_.size()) / bytes_per_id_;
  if (tokens_in_shard_ == options_.shard_tokens) tokens_in_shard_ = 0;
  const std::size_t bytes = 2 * frame_.size();  // uncompressed and compressed
  jobs_.add(
      [this, content = std::move(frame_)]() mutable {
        auto compressor = compressors_.take(
            [this] { return std::make_unique<FrameCompressor>(pack_.level(), bytes_per_id_); });
        std::string packed = compressor->compress(content);
        compressors_.give_back(std::move(compressor));
        return PackedFrame{std::move(content), std::move(packed)};
      },
      bytes);
  frame_ = std::string();
  while (jobs_.full()) write_to_file(jobs_.take());
}

void PackWriter::write_to_file(const PackedFrame& packed) {
  if (!shard_) shard_.emplace(pack_.create(shard_file_name(manifest_.shards.size())));
  shard_->write(packed.frame);
  // The seek table repeats the checksum that zstd has already computed for the frame.
  seek_table_.push_back({static_cast<std::uint32_t>(packed.frame.size()),
                         static_cast<std::uint32_t>(packed.content.size()),
                         frame_checksum(packed.frame).value()});
  pack_.hash(packed.content);
  tokens_in_file_ += static_cast<std::int64_t>(packed.content.size()) / bytes_per_id_;
  if (tokens_in_file_ == options_.shard_tokens) finish_shard();
}

void PackWriter::finish_shard() {
  if (!shard_) return;
  const std::string seek_table = encode_seek_table(seek_table_);
  shard_->write(seek_table);
  FileEntry entry =
      shard_->finish(shard_file_name(manifest_.shards.size()), tokens_in_file_ * bytes_per_id_);
  entry.tokens = std::exchange(tokens_in_file_, 0);
  entry.seek_table_hash = content_hash(seek_table);
  log_debug("{}: {} tokens in {} frames, {} bytes", entry.file, entry.tokens, seek_table_.size(),
            entry.bytes_compressed);
  manifest_.shards.push_back(entry);
  shard_.reset();
  seek_table_.clear();
}

void PackWriter::finish(const std::optional<TextCounts>& counts) {
  if (finished_) throw std::logic_error("packed folder finished twice");
  finished_ = true;
  write_frame();
  while (!jobs_.empty()) write_to_file(jobs_.take());
  finish_shard();
  manifest_.documents = document_starts_.count();
  manifest_.counts = counts;
  pack_.finish(manifest_, [this](const StartsSink& sink) { document_starts_.take(sink); });
}

}  // namespace ql::shard
