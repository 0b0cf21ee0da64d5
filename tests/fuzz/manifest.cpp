// Target: ql-manifest(5), and the files that its names lead to. With mode bit 0 the checksum is
// repaired.
#include "base/bytes.h"
#include "base/file.h"
#include "base/rows.h"
#include "fuzz/fuzz.h"
#include "shard/packed_folder.h"
#include "unit/scratch.h"

namespace ql::fuzz {

namespace {

// A folder with links that stay inside, lead out, and lead nowhere, and a file outside of it. Names
// must stay inside, wherever their links lead.
class Place {
 public:
  Place() {
    fs::create_directories(scratch_ / "data/deep");
    for (const char* name : {"outside", "data/a", "data/deep/a"}) test::spill(scratch_ / name, "x");
    const fs::path data = scratch_ / "data";
    fs::create_symlink("a", data / "inside");
    fs::create_symlink("../outside", data / "out");
    fs::create_directory_symlink("..", data / "up");
    fs::create_directory_symlink("deep", data / "down");
    fs::create_symlink("/etc/passwd", data / "far");
    fs::create_symlink("loop", data / "loop");
    folder_ = {data, data / "manifest.json", data.string()};
  }
  void check(const std::string& file) const {
    fs::path path;
    if (!accepted([&] { path = path_inside(folder_, file); })) return;
    require(is_inside_path(path.lexically_relative(folder_.folder)),
            "files of a manifest are inside its folder");
  }

 private:
  test::ScratchFolder scratch_;
  shard::PackedFolder folder_;
};

std::string repaired(std::string_view text) {
  Json json;
  if (!accepted([&] { json = parse_json(text, "manifest"); }) || !json.is_object()) {
    return std::string(text);
  }
  json.erase("checksum");
  json["checksum"] = content_hash(json.dump());
  return json.dump();
}

void check(const shard::Manifest& manifest, const Place& place) {
  const std::string text = dump_json(manifest_to_json(manifest));
  const shard::Manifest again = shard::manifest_from_json(parse_json(text, "manifest"), "manifest");
  require(dump_json(manifest_to_json(again)) == text, "what is written again reads the same");
  std::int64_t tokens = 0;
  for (const shard::FileEntry& shard : manifest.shards) {
    tokens += shard.tokens;
    require(is_inside_path(shard.file), "shards have names inside the folder");
    place.check(shard.file);
  }
  require(tokens == manifest.tokens, "the shards have the manifest's tokens");
  require(manifest.document_starts.bytes / 8 == manifest.documents, "each start has eight bytes");
  place.check(manifest.document_starts.file);
  if (manifest.vocabulary_file) place.check(manifest.vocabulary_file->file);
  shard::summary_text("data", manifest);
  TableText("all", 0).lines(shard::summary_row("data", manifest));
  json_line(shard::summary_object("data", manifest));
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static const Place place;
  const Input input = input_of(data, size);
  const std::string text = (input.mode & 1) != 0 ? repaired(input.bytes) : std::string(input.bytes);
  ql::shard::Manifest manifest;
  const bool good = accepted([&] {
    manifest = ql::shard::manifest_from_json(ql::parse_json(text, "manifest"), "manifest");
  });
  if (!good) return 0;
  ++taken_inputs;
  check(manifest, place);
  return 0;
}
