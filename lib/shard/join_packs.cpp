#include "shard/join_packs.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/signals.h"
#include "shard/document_starts_internal.h"
#include "shard/frames_ahead_internal.h"
#include "shard/new_folder_internal.h"
#include "shard/pack_writer.h"
#include "shard/shard_writer_internal.h"

namespace ql::shard {

namespace {

// A shard on its way into the new folder.
class TakenShard {
 public:
  // `file` is the new name.
  TakenShard(std::shared_ptr<ShardReader> reader, const std::string& file, const NewPack& pack)
      : reader_(std::move(reader)),
        pack_(pack),
        file_(file),
        linked_(reader_->hard_link(pack.temporary() / file)) {}

  // The next frame, as the file holds it.
  void pass(std::string_view stored) {
    add(stored);
    if (++frames_ == reader_->frames()) end();
  }
  bool ended() const { return frames_ == reader_->frames(); }
  bool linked() const { return linked_; }
  const ShardReader& reader() const { return *reader_; }

 private:
  void add(std::string_view bytes) {
    hasher_.update(bytes.data(), bytes.size());
    if (linked_) return;
    // Not before its turn: many shards may be on their way.
    if (!copy_) copy_ = pack_.create(file_);
    copy_->write(bytes.data(), bytes.size());
  }

  void end() {
    add(reader_->seek_table());
    reader_->check_hash(hasher_.digest());
    if (copy_) copy_->close();
  }

  std::shared_ptr<ShardReader> reader_;
  const NewPack& pack_;
  std::string file_;
  bool linked_;
  std::unique_ptr<NewFile> copy_;
  std::size_t frames_ = 0;
  ContentHasher hasher_;
};

// Adds up what the manifests say.
Joined describe(const JoinedData& data, const StreamHeader& header) {
  Joined joined;
  Manifest& manifest = joined.manifest;
  manifest.vocabulary = header.vocabulary;
  manifest.tokens = data.tokens();
  manifest.documents = data.documents();
  manifest.counts = data.counts();
  manifest.provenance = header.provenance;
  manifest.unknown = data.unknown_keys();
  return joined;
}

class Joiner {
 public:
  Joiner(const JoinedData& data, Joined joined, const fs::path& folder, const JoinOptions& options,
         const TokensDone& done)
      : data_(data),
        joined_(std::move(joined)),
        pack_(folder, options.force),
        done_(done),
        frames_(options.threads) {}

  Joined run(const std::string& vocabulary_text) {
    Manifest& manifest = joined_.manifest;
    for (const TokenReader& folder : data_.folders()) take_over(folder);
    pass_all();
    write_document_starts();
    manifest.data_hash = data_hasher_.digest();
    pack_.write_vocabulary(vocabulary_text, manifest);
    pack_.finish(manifest);
    return std::move(joined_);
  }

 private:
  void take_over(const TokenReader& folder) {
    std::int64_t begin = 0;
    for (const ShardEntry& entry : folder.manifest().shards) {
      take_over(open(folder, entry, begin), entry);
      begin += entry.tokens;
    }
  }

  void take_over(const std::shared_ptr<ShardReader>& reader, const ShardEntry& entry) {
    ShardEntry taken = entry;
    taken.file = shard_file_name(joined_.manifest.shards.size());
    on_their_way_.emplace_back(reader, taken.file, pack_);
    joined_.manifest.shards.push_back(taken);
    for (std::size_t frame = 0; frame < reader->frames(); ++frame) {
      check_for_stop();
      frames_.add(reader, frame);
      while (frames_.full()) pass_first();
    }
    reader->close();
  }

  std::shared_ptr<ShardReader> open(const TokenReader& folder, const ShardEntry& entry,
                                    std::int64_t begin) {
    try {
      return std::make_shared<ShardReader>(folder.place(), entry, begin, folder.vocabulary());
    } catch (const Error&) {
      // The user first hears of damage in the shards before this one.
      pass_all();
      throw;
    }
  }

  void pass_first() {
    FramesAhead::Frame frame = frames_.take();
    TakenShard& shard = on_their_way_.front();
    const std::string_view content = shard.reader().content(*frame.buffer);
    data_hasher_.update(content.data(), content.size());
    shard.pass(frame.buffer->stored);
    tokens_passed_ += static_cast<std::int64_t>(frame.ids().size());
    done_(tokens_passed_);
    frames_.give_back(std::move(frame));
    if (!shard.ended()) return;
    ++(shard.linked() ? joined_.linked : joined_.copied);
    on_their_way_.pop_front();
  }

  void pass_all() {
    while (!frames_.empty()) pass_first();
  }

  void write_document_starts() {
    Manifest& manifest = joined_.manifest;
    DocumentStartsWriter writer(pack_.create(kDocumentStartsFile), manifest.documents,
                                usual_level(manifest.vocabulary.size));
    std::int64_t before = 0;  // tokens of the folders before
    for (const TokenReader& folder : data_.folders()) {
      for_each_piece_of_starts(folder.place(), folder.manifest(), before,
                               [&](std::string_view bytes) {
                                 data_hasher_.update(bytes.data(), bytes.size());
                                 writer.write(bytes);
                               });
      before += folder.tokens();
    }
    manifest.document_starts = writer.finish();
  }

  const JoinedData& data_;
  Joined joined_;
  NewPack pack_;
  const TokensDone& done_;
  std::deque<TakenShard> on_their_way_;  // oldest first
  FramesAhead frames_;
  std::int64_t tokens_passed_ = 0;
  ContentHasher data_hasher_;
};

}  // namespace

Joined join_packs(const JoinedData& data, const std::filesystem::path& folder,
                  const StreamHeader& header, const JoinOptions& options, const TokensDone& done) {
  // This refuses data that do not go together, before anything is made.
  Joined joined = describe(data, header);
  return Joiner(data, std::move(joined), folder, options, done).run(header.vocabulary_text);
}

}  // namespace ql::shard
