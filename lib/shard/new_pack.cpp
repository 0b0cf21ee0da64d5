#include "shard/new_pack_internal.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/random_access_file.h"
#include "shard/pack_target.h"

namespace ql::shard {

NewPack::NewPack(const fs::path& folder, bool force)
    : force_(force), name_(prepare_pack_target(folder, force).string()), folder_(name_) {}

void NewPack::write_vocabulary(const std::string& text, Manifest& manifest) {
  if (text.empty()) return;
  manifest.vocabulary_file = VocabularyFileEntry{
      "vocabulary.json", static_cast<std::int64_t>(text.size()), content_hash(text)};
  write_file(manifest.vocabulary_file->file, text);
}

void NewPack::commit(Manifest& manifest) {
  const Json json = manifest_to_json(manifest);
  manifest.checksum = json["checksum"].get<std::string>();
  const std::string text = dump_json(json);
  if (static_cast<std::int64_t>(text.size()) > kLargestManifest) {
    throw Error(name_,
                fmt::format("a manifest of {} bytes for {} shards, more than the {} that are read",
                            text.size(), manifest.shards.size(), kLargestManifest),
                "use larger shards: --shard-tokens");
  }
  // Whatever a reader would refuse must not come to light when the sources are gone.
  manifest_from_json(json, (fs::path(name_) / "manifest.json").string());
  write_file("manifest.json", text);
  folder_.sync();
  // A second look, with nothing long behind it: nobody may have put something of theirs there.
  check_pack_target(name_, force_);
  folder_.commit(force_);
}

void NewPack::write_file(const std::string& file, const std::string& content) const {
  NewFile output(temporary() / file, (fs::path(name_) / file).string());
  output.write(content.data(), content.size());
  output.close();
}

}  // namespace ql::shard
