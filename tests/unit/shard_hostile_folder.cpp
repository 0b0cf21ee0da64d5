// Packed folders whose hashes are right, or taken away, and whose content is wrong.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/hash.h"
#include "base/log.h"
#include "shard/info.h"
#include "shard/little_endian.h"
#include "shard/manifest.h"
#include "shard/seek_table.h"
#include "shard/zstd_frame.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;

namespace {

using Edit = std::function<void(Json&)>;

// Rewrites the manifest with a fresh checksum.
void edit_manifest(const fs::path& folder, const Edit& edit) {
  Json json = read_json(folder / "manifest.json");
  json.erase("checksum");
  edit(json);
  if (!json.contains("checksum")) json["checksum"] = content_hash(json.dump());
  overwrite(folder / "manifest.json", dump_json(json));
}

std::string verdict(const fs::path& folder) {
  return complaint([&] {
    TokenReader reader(folder);
    reader.document_starts();
    read_all(reader);
    reader.vocabulary_text();
  });
}

std::string verdict_after(const Edit& edit) {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2, 3}, {4, 5}}, header_of(10, "v"));
  edit_manifest(scratch / "data", edit);
  return verdict(scratch / "data");
}

// Packs one shard and replaces it by `bytes`, with a manifest that agrees with it.
std::string verdict_on_shard(const std::string& bytes, std::int64_t tokens = 5) {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2, 3, 4, 5}}, header_of(10));
  overwrite(scratch / "data" / "shard-00000.zst", bytes);
  edit_manifest(scratch / "data", [&](Json& json) {
    Json& shard = json["shards"][0];
    shard["bytes_compressed"] = bytes.size();
    shard["hash"] = content_hash(bytes);
    shard["tokens"] = tokens;
    shard["bytes"] = 2 * tokens;
    json["tokens"] = tokens;
  });
  return verdict(scratch / "data");
}

std::string frame_of(const std::string& content) {
  return std::string(FrameCompressor(3).compress(content));
}

SeekEntry entry_of(const std::string& content) {
  return {static_cast<std::uint32_t>(frame_of(content).size()),
          static_cast<std::uint32_t>(content.size()),
          seek_checksum(content.data(), content.size())};
}

const std::string kFiveIds("\1\0\2\0\3\0\4\0\5\0", 10);

}  // namespace

TEST_CASE("a manifest that points outside its folder is refused") {
  const auto file_of_shard = [](const std::string& file) {
    return verdict_after([&](Json& json) { json["shards"][0]["file"] = file; });
  };
  CHECK(contains(file_of_shard("../shard-00000.zst"), "is not inside the folder"));
  CHECK(contains(file_of_shard("/etc/passwd"), "is not inside the folder"));
  CHECK(contains(file_of_shard("a/../../b"), "is not inside the folder"));
  CHECK(contains(file_of_shard(""), "is not inside the folder"));
  CHECK(contains(file_of_shard("."), "not a regular file"));
  CHECK(contains(file_of_shard("none.zst"), "none.zst: cannot open"));
  CHECK(contains(
      verdict_after([](Json& json) { json["document_starts"]["file"] = "../documents.zst"; }),
      "is not inside the folder"));
  CHECK(contains(verdict_after([](Json& json) { json["vocabulary"]["file"] = "/etc/passwd"; }),
                 "is not inside the folder"));
}

TEST_CASE("symbolic links may stay inside, and not lead out") {
  const ScratchFolder scratch;
  const fs::path data = scratch / "data";
  pack(data, {{1, 2, 3}}, header_of(10));
  fs::rename(data / "shard-00000.zst", data / "elsewhere");
  fs::create_symlink("elsewhere", data / "shard-00000.zst");
  CHECK(verdict(data).empty());
  fs::rename(data / "elsewhere", scratch / "elsewhere");
  fs::remove(data / "shard-00000.zst");
  fs::create_symlink("../elsewhere", data / "shard-00000.zst");
  CHECK(contains(verdict(data), "shard-00000.zst: a link leads out of the folder"));
  // The folder itself may be reached through a link.
  fs::remove(data / "shard-00000.zst");
  fs::rename(scratch / "elsewhere", data / "shard-00000.zst");
  fs::create_directory_symlink("data", scratch / "link");
  CHECK(verdict(scratch / "link").empty());
}

TEST_CASE("unknown versions are refused, unknown keys are kept") {
  CHECK(contains(verdict_after([](Json& json) { json["version"] = 2; }), "version 2"));
  CHECK(contains(verdict_after([](Json& json) { json["format"] = "other"; }), "format \"other\""));
  const ScratchFolder scratch;
  pack(scratch / "data", {{1}}, header_of(10));
  edit_manifest(scratch / "data", [](Json& json) { json["note"] = Json{{"by", "me"}}; });
  const TokenReader reader(scratch / "data");
  CHECK(reader.manifest().unknown == Json{{"note", {{"by", "me"}}}});
  CHECK(manifest_to_json(reader.manifest())["note"]["by"] == "me");
}

TEST_CASE("a manifest without its checksum is taken with a warning") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1}}, header_of(10));
  const fs::path path = scratch / "data" / "manifest.json";
  Json json = read_json(path);
  json["checksum"] = "0";
  overwrite(path, dump_json(json));
  CHECK(contains(verdict(scratch / "data"), "checksum mismatch"));
  json.erase("checksum");
  overwrite(path, dump_json(json));
  std::string warned;
  set_log_sink([&](LogLevel, const std::string& line) { warned += line; });
  CHECK(verdict(scratch / "data").empty());
  set_log_sink(nullptr);
  CHECK(contains(warned, "no checksum"));
}

TEST_CASE("numbers in a manifest are read strictly") {
  const Edit edits[] = {
      [](Json& json) { json["tokens"] = -1; },
      [](Json& json) { json["tokens"] = 5.0; },
      [](Json& json) { json["tokens"] = "5"; },
      [](Json& json) { json["tokens"] = 6; },
      [](Json& json) { json["documents"] = 3; },
      [](Json& json) { json["documents"] = 0; },
      [](Json& json) { json["documents"] = 6; },
      [](Json& json) { json["dtype"] = "u32"; },
      [](Json& json) { json["dtype"] = "i16"; },
      [](Json& json) { json["vocabulary"]["size"] = 0; },
      [](Json& json) { json["vocabulary"]["size"] = 70000; },
      [](Json& json) { json["vocabulary"]["size"] = 5; },  // 5 is one of the ids
      [](Json& json) { json["vocabulary"]["eos"] = 10; },
      [](Json& json) { json["shards"] = Json::object(); },
      [](Json& json) { json["shards"].push_back(json["shards"][0]); },
      [](Json& json) { json["shards"][0]["bytes"] = 12; },
      [](Json& json) { json["shards"][0]["bytes_compressed"] = 1; },
      [](Json& json) { json["shards"][0]["bytes_compressed"] = INT64_MAX; },
      [](Json& json) { json["shards"][0]["tokens"] = INT64_MAX; },
      [](Json& json) { json["shards"][0]["tokens"] = 0; },
      [](Json& json) { json["shards"][0]["tokens"] = std::uint64_t{1} << 63; },
      [](Json& json) { json["document_starts"]["bytes"] = 24; },
      [](Json& json) { json["document_starts"]["hash"] = "0"; },
      [](Json& json) { json["vocabulary"]["file_hash"] = "0"; },
      [](Json& json) { json.erase("provenance"); },
      [](Json& json) { json.erase("data_hash"); },
  };
  int number = 0;
  for (const Edit& edit : edits) {
    CAPTURE(number++);
    CHECK_FALSE(verdict_after(edit).empty());
  }
  CHECK(verdict_after([](Json&) {}).empty());
}

TEST_CASE("a manifest cannot talk to the terminal") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1}}, header_of(10));
  edit_manifest(scratch / "data", [](Json& json) {
    json["vocabulary"]["type"] = "\x1b[31m\tword\n";
    json["provenance"]["command"] = "\x1b]0;title\x07";
  });
  const Manifest manifest = read_manifest(find_packed_folder(scratch / "data"));
  const std::string text = info_text("data", manifest), tsv = info_tsv("data", manifest);
  for (const std::string& said : {text, tsv, info_json("data", manifest)})
    CHECK(said.find('\x1b') == std::string::npos);
  CHECK(contains(text, "?]0;title?"));
  const std::string header = info_tsv_header();
  CHECK(std::count(tsv.begin(), tsv.end(), '\t') == std::count(header.begin(), header.end(), '\t'));
  CHECK(std::count(tsv.begin(), tsv.end(), '\n') == 1);
}

TEST_CASE("a huge number of documents allocates nothing") {
  const std::int64_t many = std::int64_t{1} << 56;
  CHECK_FALSE(verdict_after([&](Json& json) {
                json["tokens"] = many;
                json["documents"] = many;
                json["document_starts"]["bytes"] = 8 * many;
                json["shards"][0]["tokens"] = many;
                json["shards"][0]["bytes"] = 2 * many;
              }).empty());
}

TEST_CASE("lies in the seek table are found") {
  const std::string frame = frame_of(kFiveIds);
  const SeekEntry good = entry_of(kFiveIds);
  CHECK(verdict_on_shard(frame + encode_seek_table({good})).empty());
  const auto with = [&](const std::vector<SeekEntry>& entries, std::int64_t tokens = 5) {
    return verdict_on_shard(frame + encode_seek_table(entries), tokens);
  };
  CHECK(contains(with({}), "0 frames do not fit"));
  CHECK(contains(with({{good.frame_bytes + 1, 10, good.checksum}}), "its frames take"));
  CHECK(contains(with({{good.frame_bytes - 1, 10, good.checksum}}), "its frames take"));
  CHECK(contains(with({{0xFFFFFFFF, 10, good.checksum}}), "more than any frame needs"));
  // Overlapping frames: both claim the whole of it.
  CHECK(contains(with({good, good}, 10), "its frames take"));
  CHECK(contains(with({good, {0, 10, good.checksum}}, 10), "not a zstd frame"));
  CHECK(contains(with({{good.frame_bytes, 12, good.checksum}}, 6), "does not state"));
  CHECK(contains(with({{good.frame_bytes, 8, good.checksum}}, 4), "does not state"));
  CHECK(contains(with({{good.frame_bytes, 11, good.checksum}}), "no whole number of ids"));
  CHECK(contains(with({{good.frame_bytes, 0, good.checksum}}), "0 bytes of content"));
  CHECK(contains(with({{good.frame_bytes, 0xFFFFFFFF, 0}}), "4294967295 bytes of content"));
  CHECK(contains(with({{good.frame_bytes, 10, good.checksum ^ 1}}), "frame 0: checksum mismatch"));
  CHECK(contains(with({good}, 6), "the seek table has 5 tokens, but the manifest says 6"));
}

TEST_CASE("a seek table whose size would overflow is refused") {
  std::string bytes = frame_of(kFiveIds) + encode_seek_table({entry_of(kFiveIds)});
  for (const std::uint32_t frames : {0U, 2U, 0x8000001U, 0x15555555U, 0x55555556U, 0xFFFFFFFFU}) {
    CAPTURE(frames);
    store_little_endian(&bytes[bytes.size() - 9], frames);
    CHECK_FALSE(verdict_on_shard(bytes).empty());
  }
}

TEST_CASE("frames that are not what they should be are refused") {
  const std::string frame = frame_of(kFiveIds);
  const auto shard = [](const std::string& frames, const std::string& content) {
    return frames + encode_seek_table({{static_cast<std::uint32_t>(frames.size()),
                                        static_cast<std::uint32_t>(content.size()),
                                        seek_checksum(content.data(), content.size())}});
  };
  CHECK(verdict_on_shard(shard(frame, kFiveIds)).empty());
  CHECK(
      contains(verdict_on_shard(shard(frame + frame, kFiveIds + kFiveIds), 10), "its zstd frame"));
  CHECK(contains(verdict_on_shard(shard("no frame at all", kFiveIds)), "not a zstd frame"));
  const std::string foreign("\1\0\2\0\3\0\4\0\12\0", 10);
  CHECK(contains(verdict_on_shard(shard(frame_of(foreign), foreign)),
                 "frame 0: token 4: id 10 is outside the vocabulary of 10 entries"));
  CHECK(contains(verdict_on_shard(std::string(16, '\0')), "too short"));
}

}  // namespace ql::shard
