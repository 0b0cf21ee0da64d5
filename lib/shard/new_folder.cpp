#include "shard/new_folder_internal.h"

#include "base/error.h"
#include "base/hash.h"
#include "shard/pack_target.h"

namespace ql::shard {

namespace {

const fs::path& with_parents(const fs::path& path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) throw SystemError(path.string(), "create the folder around it", error.value());
  return path;
}

}  // namespace

NewFolder::NewFolder(const fs::path& path) : AtomicFolder(with_parents(path)), path_(path) {}

NewPack::NewPack(const fs::path& folder, bool force)
    : NewFolder(check_pack_target(folder, force)), force_(force) {}

void NewPack::write_vocabulary(const std::string& text, Manifest& manifest) const {
  if (text.empty()) return;
  manifest.vocabulary_file = VocabularyFileEntry{
      kVocabularyFile, static_cast<std::int64_t>(text.size()), content_hash(text)};
  write_file(manifest.vocabulary_file->file, text);
}

void NewPack::finish(Manifest& manifest) {
  const Json json = manifest_to_json(manifest);
  manifest.checksum = json["checksum"].get<std::string>();
  const std::string text = dump_json(json);
  if (static_cast<std::int64_t>(text.size()) > kLargestManifest) {
    throw Error(path().string(),
                fmt::format("a manifest of {} bytes for {} shards, more than the {} that are read",
                            text.size(), manifest.shards.size(), kLargestManifest),
                "use larger shards: --shard-tokens");
  }
  // Whatever a reader would refuse must not come to light when the sources are gone.
  manifest_from_json(json, (path() / "manifest.json").string());
  write_file("manifest.json", text);
  sync();
  // A second look, with nothing long behind it: nobody may have put something of theirs there.
  check_pack_target(path(), force_);
  commit(force_);
}

void NewPack::write_file(const std::string& file, const std::string& content) const {
  const auto output = create(file);
  output->write(content.data(), content.size());
  output->close();
}

}  // namespace ql::shard
