// Implements the checks of a packed folder, from the manifest to single ids.

#include "shard/verify.h"

#include "base/bytes.h"
#include "base/process.h"
#include "shard/document_starts.h"
#include "shard/shard.h"
#include "shard/token_reader.h"

namespace ql::shard {

namespace {

class Verifier {
 public:
  Verifier(const std::function<void(const std::string&)>& problem, const TokensDone& done,
           int threads)
      : problem_(problem), done_(done), threads_(threads) {}

  Verification run(const std::filesystem::path& folder) {
    std::optional<Manifest> manifest;
    check([&] {
      place_ = find_packed_folder(folder);
      manifest = verify_manifest();
    });
    if (!manifest) return result_;
    result_.tokens = manifest->tokens;
    result_.documents = manifest->documents;
    result_.shards = static_cast<std::int64_t>(manifest->shards.size());
    check([&] { read_vocabulary_text(place_, *manifest); });
    for (const FileEntry& entry : manifest->shards) {
      check([&] { verify_shard(entry, *manifest); });
      tokens_ += entry.tokens;
    }
    check([&] {
      for_each_piece_of_starts(place_, *manifest, 0, [this](std::string_view bytes) {
        data_hasher_.update(bytes.data(), bytes.size());
      });
    });
    check([&] {
      if (result_.problems == 0 && data_hasher_.digest() != manifest->data_hash) {
        throw FormatError(
            place_.name, "the hash of the data differs from that in the manifest",
            "shards were exchanged or the manifest was edited: pack the folder again");
      }
    });
    return result_;
  }

 private:
  // Runs one check. An Error that the check throws is a finding. Interrupted is not an Error, so it
  // is not caught.
  template <typename Check>
  void check(const Check& work) {
    try {
      work();
    } catch (const Error& error) {
      ++result_.problems;
      problem_(error.what());
    }
  }

  Manifest verify_manifest() {
    const std::string where = place_.manifest.string();
    const std::string text = read_manifest_text(place_);
    const Json json = parse_json(text, where);
    Manifest manifest = manifest_from_json(json, where);
    // A flipped bit in the name of the key "checksum" looks like a deleted key, so a missing
    // checksum is a finding.
    if (manifest.checksum.empty()) {
      throw FormatError(where, "the manifest has no checksum and cannot be verified",
                        "if you edited it, make a copy with a checksum: `qlbin merge -o COPY DIR`");
    }
    // The checksum covers the values, but not their formatting, so the text is compared with what
    // qlbin writes.
    if (text != dump_json(json)) {
      throw FormatError(where, "the manifest is not formatted as qlbin writes it",
                        "it is damaged or was edited; if you edited it, make a good copy: `qlbin "
                        "merge -o COPY DIR`");
    }
    return manifest;
  }

  void verify_shard(const FileEntry& entry, const Manifest& manifest) {
    const auto shard = std::make_shared<ShardReader>(place_, entry, tokens_, manifest.vocabulary);
    const std::int64_t problems_before = result_.problems;
    FramesAhead frames(threads_);
    std::size_t checked = 0;
    const auto check_first = [&] {
      check([&] {
        FramesAhead::Frame frame = frames.take();
        const std::string_view content = shard->content(*frame.buffer);
        data_hasher_.update(content.data(), content.size());
        frames.give_back(std::move(frame));
      });
      done_(shard->frame_end(checked++));
    };
    for (std::size_t frame = 0; frame < shard->frames(); ++frame) {
      check_for_stop();
      frames.add(shard, frame);
      while (frames.full()) check_first();
    }
    while (!frames.empty()) check_first();
    if (result_.problems == problems_before) shard->check_hash(shard->file().hash());
  }

  PackedFolder place_;
  const std::function<void(const std::string&)>& problem_;
  const TokensDone& done_;
  int threads_;
  Verification result_;
  std::int64_t tokens_ = 0;  // in the previous shards
  ContentHasher data_hasher_;
};

}  // namespace

Verification verify_folder(const std::filesystem::path& folder,
                           const std::function<void(const std::string&)>& problem,
                           const TokensDone& done, int threads) {
  return Verifier(problem, done, threads).run(folder);
}

}  // namespace ql::shard
