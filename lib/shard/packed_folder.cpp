// Implements the search for a packed folder and the checks of its files.

#include "shard/packed_folder.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/log.h"

namespace ql::shard {

// Throws FormatError for a symbolic link whose target is missing. Tools such as git-annex and DVC
// put links into a folder, and fetch the content later.
static void refuse_dangling_link(const fs::path& path) {
  std::error_code error;
  if (fs::status(path, error).type() != fs::file_type::not_found) return;
  const fs::path target = fs::read_symlink(path, error);
  if (error) return;
  throw FormatError(
      path.string(),
      fmt::format("this is a symbolic link to {}, which does not exist", target.string()),
      "fetch the file's content first (as with `git annex get` or `dvc pull`)");
}

bool is_checkpoint(const fs::path& path) {
  std::error_code unknown;
  return !fs::exists(path / "manifest.json", unknown) &&
         (fs::exists(path / "model.json", unknown) ||
          fs::exists(path / "model.safetensors", unknown));
}

PackedFolder find_packed_folder(const fs::path& path) {
  std::error_code error;
  refuse_dangling_link(path);
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw SystemError(path.string(), "open", error ? error.value() : ENOENT);
  if (!fs::is_directory(status)) {
    if (path.extension() != ".json") {
      throw FormatError(path.string(), "neither a packed folder nor its manifest.json",
                        fs::exists(path.parent_path() / "manifest.json", error)
                            ? "name the folder that the file is in"
                            : "encode text with `qltok encode`, and pack the token stream with "
                              "`qlbin pack -o DIR`");
    }
    const fs::path folder = folder_of(path);
    return {folder, path, folder.string()};
  }
  const fs::path manifest = path / "manifest.json";
  refuse_dangling_link(manifest);
  if (!fs::exists(manifest, error)) {
    if (error) throw SystemError(manifest.string(), "open", error.value());
    if (is_checkpoint(path)) {
      throw FormatError(
          path.string(), "this is a checkpoint, but packed data is expected",
          "give a folder that `qlbin pack -o DIR` made; qleval takes a checkpoint after -m");
    }
    throw FormatError(path.string(),
                      "this folder has no manifest.json, so it is not complete packed data",
                      "pack data with `qlbin pack -o DIR`, or copy the folder again");
  }
  return {path, manifest, path.string()};
}

std::string read_manifest_text(const PackedFolder& place) {
  const RandomAccessFile file(place.manifest);
  check_kind(file.head(), Content::kJson, place.manifest.string());
  return file.text(kLargestManifest);
}

Manifest read_manifest(const PackedFolder& place) {
  const std::string where = place.manifest.string();
  log_debug("reading {}", where);
  return manifest_from_json(parse_json(read_manifest_text(place), where), where);
}

std::vector<std::string> files_of(const PackedFolder& place, const Manifest& manifest) {
  std::vector<std::string> files = {place.manifest.string()};
  const auto add = [&](const std::string& name) {
    files.push_back((place.folder / name).string());
  };
  add(manifest.document_starts.file);
  if (manifest.vocabulary_file) add(manifest.vocabulary_file->file);
  for (const FileEntry& shard : manifest.shards) add(shard.file);
  return files;
}

std::vector<std::string> files_of(const std::string& name) {
  try {
    const PackedFolder place = find_packed_folder(name);
    return files_of(place, read_manifest(place));
  } catch (const Error&) {
    return {name};
  }
}

std::string read_vocabulary_text(const PackedFolder& place, const Manifest& manifest) {
  if (!manifest.vocabulary_file) return "";
  const VocabularyFileEntry& entry = *manifest.vocabulary_file;
  const fs::path path = path_inside(place, entry.file);
  const RandomAccessFile file(path);
  check_kind(file.head(), Content::kVocabulary, path.string());
  check_size(path.string(), file.size(), entry.bytes);
  std::string text = file.text(entry.bytes);
  if (content_hash(text) != entry.hash) {
    fail_as_damaged(path.string(), "hash mismatch");
  }
  return text;
}

fs::path path_inside(const PackedFolder& place, const std::string& file) {
  fs::path path = place.folder / file;
  if (!is_inside_path(file)) {
    throw FormatError(path.string(), "this path is not inside the folder",
                      "a manifest may name only files inside its folder");
  }
  refuse_dangling_link(path);
  return path;
}

}  // namespace ql::shard
