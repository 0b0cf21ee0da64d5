// Tests packed folders whose hashes are right, or removed, and whose content is wrong.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "base/rows.h"
#include "shard/document_starts.h"
#include "shard/multi_reader.h"
#include "shard/zstd_frame.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::in_child;
using ql::test::ScratchFolder;
using ql::test::slurp;

namespace {

using Edit = std::function<void(Json&)>;

// Rewrites the manifest with a new checksum.
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
    read_document_starts(reader.place(), reader.manifest());
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
void pack_shard(const fs::path& folder, const std::string& bytes, std::int64_t tokens) {
  pack(folder, {{1, 2, 3, 4, 5}}, header_of(10));
  overwrite(folder / "shard-00000.zst", bytes);
  edit_manifest(folder, [&](Json& json) {
    Json& shard = json["shards"][0];
    shard["bytes_compressed"] = bytes.size();
    shard["hash"] = content_hash(bytes);
    shard.erase("seek_table_hash");  // `bytes` need not have a seek table
    shard["tokens"] = tokens;
    shard["bytes"] = 2 * tokens;
    json["tokens"] = tokens;
  });
}

std::string verdict_on_shard(const std::string& bytes, std::int64_t tokens = 5) {
  const ScratchFolder scratch;
  pack_shard(scratch / "data", bytes, tokens);
  return verdict(scratch / "data");
}

// Reads one token only, because some shards claim more tokens than fit into memory.
std::string verdict_on_token(const std::string& bytes, std::int64_t tokens, std::int64_t position) {
  const ScratchFolder scratch;
  pack_shard(scratch / "data", bytes, tokens);
  return complaint([&] {
    TokenReader reader(scratch / "data");
    std::int64_t id = 0;
    reader.read(position, 1, &id);
  });
}

std::string frame_of(const std::string& content) { return FrameCompressor(3).compress(content); }

SeekEntry entry_of(const std::string& content) {
  return {static_cast<std::uint32_t>(frame_of(content).size()),
          static_cast<std::uint32_t>(content.size()),
          seek_checksum(content.data(), content.size())};
}

const std::string kFiveIds("\1\0\2\0\3\0\4\0\5\0", 10);

}  // namespace

TEST_CASE("manifest_from_json: a manifest that points outside its folder is refused") {
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

TEST_CASE("path_inside: symbolic links of the folder's own names are followed") {
  // Each way of storing files moves one into `store` and leaves a link in its place.
  struct Case {
    const char* store;  // from the scratch folder
    const char* link;   // from the packed folder; a '@' stands for the scratch folder
  };
  const Case cases[] = {
      {"data/elsewhere", "elsewhere"},                              // inside
      {"blobs/3f5a", "../blobs/3f5a"},                              // Hugging Face's cache
      {".git/annex/objects/S.zst", "../.git/annex/objects/S.zst"},  // git-annex
      {"cache/files/md5/ab/cdef", "@/cache/files/md5/ab/cdef"},     // DVC
      {"data/deep/er", "../link/deep/er"},                          // through another link
  };
  for (const auto& [store, link] : cases) {
    for (const char* name :
         {"manifest.json", "shard-00000.zst", "documents.zst", "vocabulary.json"}) {
      CAPTURE(store);
      CAPTURE(name);
      const ScratchFolder scratch;
      const fs::path data = scratch / "data", stored = scratch / store;
      pack(data, {{1, 2, 3}}, header_of(10, "v"));
      fs::create_directory_symlink("data", scratch / "link");
      fs::create_directories(stored.parent_path());
      fs::rename(data / name, stored);
      std::string target = link;
      if (target[0] == '@') target.replace(0, 1, scratch.path().string());
      fs::create_symlink(target, data / name);
      CHECK(verdict(data).empty());
      // The folder itself may be reached through a link.
      CHECK(verdict(scratch / "link").empty());
      // The hashes protect the content.
      std::string changed = ql::test::slurp(stored);
      changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
      overwrite(stored, changed);
      CHECK_FALSE(verdict(data).empty());
      fs::remove(stored);
      CHECK(contains(verdict(data), std::string(name) + ": this is a symbolic link to " + target +
                                        ", which does not exist; fetch the file's content first"));
    }
  }
}

TEST_CASE("path_inside: links that lead to no file are refused") {
  const std::pair<const char*, const char*> cases[] = {{"shard-00000.zst", "too many"},
                                                       {"/dev/zero", "not a regular file"},
                                                       {".", "not a regular file"},
                                                       {"/none/at/all", "which does not exist"}};
  for (const auto& [target, message] : cases) {
    CAPTURE(target);
    const ScratchFolder scratch;
    pack(scratch / "data", {{1, 2, 3}}, header_of(10));
    fs::remove(scratch / "data" / "shard-00000.zst");
    fs::create_symlink(target, scratch / "data" / "shard-00000.zst");
    CHECK(contains(verdict(scratch / "data"), message));
  }
}

TEST_CASE(
    "read_manifest: a manifest that is not a regular file, or too large, is refused at once") {
  const ScratchFolder scratch;
  const fs::path data = scratch / "data", path = data / "manifest.json";
  pack(data, {{1}}, header_of(10));
  fs::remove(path);
  // Nobody writes to it, so opening it as a file would wait for ever.
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto ending = in_child([&] {
    ::alarm(10);
    for (const fs::path& name : {data, path}) {
      if (!contains(verdict(name), "manifest.json: this is not a regular file")) return 1;
    }
    return 0;
  });
  CHECK(ending.exit_code == 0);
  fs::remove(path);
  overwrite(path, "");
  fs::resize_file(path, kLargestManifest + 1);
  CHECK(contains(verdict(data), "larger than 268435456 bytes"));
}

TEST_CASE("manifest_from_json: unknown versions are refused, unknown keys are kept") {
  CHECK(contains(verdict_after([](Json& json) { json["version"] = 2; }), "version is 2"));
  CHECK(contains(verdict_after([](Json& json) { json["format"] = "other"; }), "format is 'other'"));
  const ScratchFolder scratch;
  pack(scratch / "data", {{1}}, header_of(10));
  edit_manifest(scratch / "data", [](Json& json) { json["note"] = Json{{"by", "me"}}; });
  const TokenReader reader(scratch / "data");
  CHECK(reader.manifest().unknown == Json{{"note", {{"by", "me"}}}});
  CHECK(manifest_to_json(reader.manifest())["note"]["by"] == "me");
}

TEST_CASE("manifest_from_json: a manifest without its checksum is accepted with a warning") {
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

TEST_CASE("manifest_from_json: numbers in a manifest are read strictly") {
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

TEST_CASE("manifest_from_json: text of a manifest cannot control the terminal") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1}}, header_of(10));
  edit_manifest(scratch / "data", [](Json& json) {
    json["vocabulary"]["type"] = "\x1b[31m\tword\n";
    json["provenance"]["command"] = "\x1b]0;title\x07";
  });
  const Manifest manifest = read_manifest(find_packed_folder(scratch / "data"));
  const std::string text = summary_text("data", manifest),
                    tsv = TableText("all", 0).lines(summary_row("data", manifest));
  for (const std::string& said : {text, tsv, json_line(summary_object("data", manifest))}) {
    CHECK(said.find('\x1b') == std::string::npos);
  }
  CHECK(contains(text, "?]0;title?"));
  const auto row = tsv.begin() + static_cast<std::ptrdiff_t>(tsv.find('\n')) + 1;
  CHECK(std::count(row, tsv.end(), '\t') == std::count(tsv.begin(), row, '\t'));
  CHECK(std::count(row, tsv.end(), '\n') == 1);
}

TEST_CASE("read_document_starts: a huge number of documents allocates nothing") {
  // Eight times the last number exceeds 64 bits.
  for (const int power : {40, 56, 59, 60}) {
    const std::int64_t many = std::int64_t{1} << power;
    CAPTURE(many);
    CHECK_FALSE(verdict_after([&](Json& json) {
                  json["tokens"] = many;
                  json["documents"] = many;
                  json["document_starts"]["bytes"] = power < 60 ? 8 * many : INT64_MAX;
                  json["shards"][0]["tokens"] = many;
                  json["shards"][0]["bytes"] = 2 * many;
                }).empty());
  }
}

TEST_CASE("MultiReader: a huge number of documents allocates nothing, and names the bad folder") {
  const ScratchFolder scratch;
  const std::vector<std::string> folders{(scratch / "first").string(),
                                         (scratch / "second").string()};
  for (const std::string& folder : folders) pack(folder, {{1, 2, 3}, {4, 5}}, header_of(10));
  for (const std::string& folder : folders) {
    const std::string before = slurp(fs::path(folder) / "manifest.json");
    for (const int power : {40, 50}) {
      const std::int64_t many = std::int64_t{1} << power;
      CAPTURE(many);
      edit_manifest(folder, [&](Json& json) {
        json["tokens"] = many;
        json["documents"] = many;
        json["document_starts"]["bytes"] = 8 * many;
        json["shards"][0]["tokens"] = many;
        json["shards"][0]["bytes"] = 2 * many;
      });
      const MultiReader data(folders);
      CHECK(contains(complaint([&] { data.document_starts(); }), folder + "/documents.zst: "));
      overwrite(fs::path(folder) / "manifest.json", before);
    }
  }
}

TEST_CASE("manifest_from_json: the number of unknown keys has a bound") {
  const auto with_keys = [](int count) {
    return verdict_after([&](Json& json) {
      for (int i = 0; i < count; ++i) json["key " + std::to_string(i)] = i;
    });
  };
  CHECK(with_keys(1000).empty());
  CHECK(contains(with_keys(1001), "more than 1000 unknown keys"));
}

TEST_CASE("read_vocabulary_text: a vocabulary file beyond the limit of token streams is refused") {
  CHECK(contains(verdict_after([](Json& json) {
                   json["vocabulary"]["file_bytes"] = (std::int64_t{1} << 30) + 1;
                 }),
                 "file_bytes: expected at most 1073741824"));
}

namespace {

// Returns the message about a documents.zst of these bytes, whose hash the manifest has.
std::string verdict_on_starts(const std::string& file, std::int64_t documents,
                              std::int64_t tokens) {
  const ScratchFolder scratch;
  overwrite(scratch / "documents.zst", file);
  Manifest manifest;
  manifest.tokens = tokens;
  manifest.documents = documents;
  manifest.document_starts = {"documents.zst", 8 * documents,
                              static_cast<std::int64_t>(file.size()), content_hash(file)};
  return complaint([&] {
    const auto starts = read_document_starts({scratch.path(), {}, "data"}, manifest);
    CHECK(starts.size() == static_cast<std::size_t>(documents));
  });
}

// Returns a frame that states a content of `blocks` blocks of 128 KiB of zeros, with four bytes for
// each.
std::string frame_of_zeros(std::uint64_t blocks) {
  std::string frame("\x28\xB5\x2F\xFD\xC0\x38", 6);  // a window of 128 KiB, no checksum
  append_little_endian(frame, blocks << 17);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    const std::uint32_t last = block + 1 == blocks ? 1 : 0, repeated_byte = 1;
    const std::uint32_t header = last | repeated_byte << 1 | 1U << 17 << 3;
    frame += {static_cast<char>(header), static_cast<char>(header >> 8),
              static_cast<char>(header >> 16), '\0'};
  }
  return frame;
}

}  // namespace

TEST_CASE(
    "DocumentStartsReader: document starts are read in pieces, each checked before the next") {
  const std::int64_t many = 300'000;
  std::vector<std::int64_t> starts(many);
  for (std::int64_t i = 0; i < many; ++i) starts[static_cast<std::size_t>(i)] = 3 * i;
  const std::string good = frame_of(encode_document_starts(starts));
  CHECK(verdict_on_starts(good, many, 3 * many).empty());
  CHECK(contains(verdict_on_starts(good, many, 3 * many - 3),
                 "document 299999 begins at position 899997"));
  starts[200'000] = starts[199'999];
  CHECK(contains(verdict_on_starts(frame_of(encode_document_starts(starts)), many, 3 * many),
                 "document 200000 begins at position 599997"));
  CHECK(contains(verdict_on_starts(good, many - 1, 3 * many), "expected a zstd frame for "));
  CHECK(contains(verdict_on_starts(good.substr(0, good.size() - 1), many, 3 * many),
                 "the zstd frame ends too early"));
  CHECK(contains(verdict_on_starts(good + "x", many, 3 * many), "data follows the zstd frame"));
  CHECK(contains(verdict_on_starts(good + good, many, 3 * many), "data follows the zstd frame"));
  CHECK(
      contains(verdict_on_starts("no frame at all", many, 3 * many), "expected a zstd frame for "));
  CHECK(contains(verdict_on_starts("", 0, 0), "the zstd frame ends too early"));
  CHECK(verdict_on_starts(frame_of(""), 0, 0).empty());
}

TEST_CASE("DocumentStartsReader: a documents.zst with a terabyte of zeros is refused at once") {
  // zstd itself accepts these frames.
  const std::string small = frame_of_zeros(3);
  std::string content(3 << 17, 'x');
  REQUIRE(FrameDecompressor().decompress(small, content.size(), content.data()).empty());
  REQUIRE(content == std::string(3 << 17, '\0'));
  const std::int64_t terabyte = std::int64_t{1} << 40;
  const std::string bomb = frame_of_zeros(static_cast<std::uint64_t>(terabyte >> 17));
  CHECK(
      contains(verdict_on_starts(bomb, terabyte / 8, terabyte), "document 1 begins at position 0"));
}

TEST_CASE("read_seek_table: wrong entries in the seek table are found") {
  const std::string frame = frame_of(kFiveIds);
  const SeekEntry good = entry_of(kFiveIds);
  CHECK(verdict_on_shard(frame + encode_seek_table({good})).empty());
  const auto with = [&](const std::vector<SeekEntry>& entries, std::int64_t tokens = 5) {
    return verdict_on_shard(frame + encode_seek_table(entries), tokens);
  };
  CHECK(contains(with({}), "this number of frames: 0"));
  CHECK(contains(with({{good.frame_bytes + 1, 10, good.checksum}}),
                 "bytes of compressed ids before the table"));
  CHECK(contains(with({{good.frame_bytes - 1, 10, good.checksum}}),
                 "bytes of compressed ids before the table"));
  CHECK(contains(with({{0xFFFFFFFF, 10, good.checksum}}), "frame 0: 4294967295 compressed bytes"));
  // Two frames overlap: both claim the complete content.
  CHECK(contains(with({good, good}, 10), "bytes of compressed ids before the table"));
  CHECK(contains(with({good, {0, 10, good.checksum}}, 10), "not a zstd frame"));
  CHECK(contains(with({{good.frame_bytes, 12, good.checksum}}, 6), "expected a zstd frame for "));
  CHECK(contains(with({{good.frame_bytes, 8, good.checksum}}, 4), "expected a zstd frame for "));
  CHECK(contains(with({{good.frame_bytes, 11, good.checksum}}), "not a whole number of ids"));
  CHECK(contains(with({{good.frame_bytes, 0, good.checksum}}), "0 bytes of content"));
  CHECK(contains(with({{good.frame_bytes, 0xFFFFFFFF, 0}}), "4294967295 bytes of content"));
  CHECK(contains(with({{good.frame_bytes, 10, good.checksum ^ 1}}), "frame 0: checksum mismatch"));
  CHECK(contains(with({good}, 6), "the seek table has 5 tokens, but the manifest states 6"));
}

TEST_CASE("read_seek_table: a seek table whose size would overflow is refused") {
  std::string bytes = frame_of(kFiveIds) + encode_seek_table({entry_of(kFiveIds)});
  for (const std::uint32_t frames : {0U, 2U, 0x8000001U, 0x15555555U, 0x55555556U, 0xFFFFFFFFU}) {
    CAPTURE(frames);
    store_little_endian(&bytes[bytes.size() - 9], frames);
    CHECK_FALSE(verdict_on_shard(bytes).empty());
  }
}

TEST_CASE("ShardReader: a frame that unpacks to more than its entry says is refused") {
  // 32 KiB expand to 1 GiB of zeros; the largest content that a table may claim is 64 MiB.
  const std::string bomb = frame_of_zeros(8192);
  for (const std::uint32_t claim : {10U, 64U << 20}) {
    const std::string table =
        encode_seek_table({{static_cast<std::uint32_t>(bomb.size()), claim, 0}});
    CHECK(contains(verdict_on_token(bomb + table, claim / 2, 0), "expected a zstd frame for "));
  }
  const std::string table =
      encode_seek_table({{static_cast<std::uint32_t>(bomb.size()), 1U << 30, 0}});
  CHECK(contains(verdict_on_token(bomb + table, 1 << 29, 0), "1073741824 bytes of content"));
}

TEST_CASE("read_seek_table: a seek table that claims a petabyte allocates nothing for it") {
  // Two million frames of 64 MiB each claim to be in a few bytes.
  std::vector<SeekEntry> entries(2'000'000, SeekEntry{0, 64U << 20, 0});
  entries.front() = entry_of(kFiveIds);
  const std::string bytes = frame_of(kFiveIds) + encode_seek_table(entries);
  const std::int64_t tokens = 5 + (std::int64_t{1'999'999} << 25);
  CHECK(verdict_on_token(bytes, tokens, 4).empty());
  CHECK(contains(verdict_on_token(bytes, tokens, tokens - 1), "frame 1999999: not a zstd frame"));
}

TEST_CASE("ShardReader: frames with wrong content are refused") {
  const std::string frame = frame_of(kFiveIds);
  const auto shard = [](const std::string& frames, const std::string& content) {
    return frames + encode_seek_table({{static_cast<std::uint32_t>(frames.size()),
                                        static_cast<std::uint32_t>(content.size()),
                                        seek_checksum(content.data(), content.size())}});
  };
  CHECK(verdict_on_shard(shard(frame, kFiveIds)).empty());
  CHECK(contains(verdict_on_shard(shard(frame + frame, kFiveIds + kFiveIds), 10),
                 "its zstd data has"));
  CHECK(contains(verdict_on_shard(shard("no frame at all", kFiveIds)), "not a zstd frame"));
  const std::string outside("\1\0\2\0\3\0\4\0\12\0", 10);
  CHECK(contains(verdict_on_shard(shard(frame_of(outside), outside)),
                 "frame 0: token 4: id 10 is outside the vocabulary of 10 entries"));
  CHECK(contains(verdict_on_shard(std::string(16, '\0')), "too short"));
}

TEST_CASE(
    "manifest_from_json: tokens without a document, and documents without tokens, are refused") {
  const ScratchFolder scratch;
  const Manifest good = pack(scratch / "data", {{1, 2, 3}}, header_of(10));
  const auto said = [](const Manifest& manifest) {
    return complaint([&] { manifest_from_json(manifest_to_json(manifest), "manifest.json"); });
  };
  CHECK(said(good).empty());
  Manifest without_documents = good, without_tokens = good;
  without_documents.documents = without_documents.document_starts.bytes = 0;
  CHECK(contains(said(without_documents),
                 "document starts of 0 bytes contradict 0 documents in 3 tokens"));
  without_tokens.tokens = 0;
  without_tokens.shards.clear();
  CHECK(contains(said(without_tokens),
                 "document starts of 8 bytes contradict 1 documents in 0 tokens"));
}

}  // namespace ql::shard
