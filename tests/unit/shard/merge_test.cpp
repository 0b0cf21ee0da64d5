// Compares the merge of folders, which keeps their shards, with packing all tokens at once.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/file.h"
#include "shard/merge.h"
#include "shard/verify.h"
#include "unit/damage.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;
using ql::test::slurp;

namespace {

Joined join(const std::vector<std::string>& folders, const fs::path& folder, int threads = 2,
            bool force = false) {
  const MultiReader data(folders);
  PackOptions options;
  options.threads = threads;
  options.force = force;
  return merge_folders(data, folder, data.header(Json::object()), options, [](std::int64_t) {});
}

std::int64_t problem_count(const fs::path& folder) {
  return verify_folder(
             folder, [](const std::string& problem) { MESSAGE(problem); }, [](std::int64_t) {})
      .problems;
}

ino_t inode(const fs::path& path) {
  struct stat status = {};
  ::stat(path.c_str(), &status);
  return status.st_ino;
}

void flip_bit(const fs::path& path, std::size_t bit) {
  overwrite(path, ql::test::with_flipped_bit(slurp(path), bit));
}

}  // namespace

TEST_CASE("merge_folders: the result equals packing all tokens at once") {
  for (const std::int64_t vocabulary : {300, 70000}) {
    const ScratchFolder scratch;
    Documents all;
    std::vector<std::string> folders;
    std::size_t shards = 0;
    // Each folder has several shards, none or one, with other sizes of frames and shards.
    for (const std::size_t tokens : {500U, 0U, 1U, 333U, 0U}) {
      const Documents part = random_documents(tokens, vocabulary, static_cast<unsigned>(tokens));
      PackOptions options;
      options.shard_tokens = 70 + static_cast<std::int64_t>(tokens) / 10;
      options.frame_tokens = 7 + static_cast<std::int64_t>(folders.size());
      folders.push_back((scratch / std::to_string(folders.size())).string());
      shards += pack(folders.back(), part, header_of(vocabulary, "words"), options).shards.size();
      all.insert(all.end(), part.begin(), part.end());
    }
    const Manifest at_once = pack(scratch / "at_once", all, header_of(vocabulary, "words"));
    for (const int threads : {1, 2, 5}) {
      const Joined joined = join(folders, scratch / "joined", threads, true);
      CHECK(joined.manifest.data_hash == at_once.data_hash);
      CHECK(joined.manifest.tokens == at_once.tokens);
      CHECK(joined.manifest.documents == at_once.documents);
      CHECK(joined.manifest.counts->bytes == 5 * kSomeCounts.bytes);
      CHECK(joined.manifest.shards.size() == shards);
      CHECK(joined.linked + joined.copied == static_cast<std::int64_t>(shards));
      CHECK(problem_count(scratch / "joined") == 0);
      TokenReader reader(scratch / "joined");
      CHECK(read_all(reader) == all_ids(all));
      CHECK(read_document_starts(reader.place(), reader.manifest()) == all_starts(all));
      CHECK(reader.vocabulary_text() == "words");
      CHECK(reader.manifest().checksum == joined.manifest.checksum);
    }
  }
}

TEST_CASE("merge_folders: shards are taken over byte for byte, as links where possible") {
  const ScratchFolder scratch;
  PackOptions options;
  options.shard_tokens = 2;
  const Manifest a = pack(scratch / "a", {{1, 2, 3}}, header_of(10), options);
  const Manifest b = pack(scratch / "b", {{4}}, header_of(10), options);
  const Joined joined = join({(scratch / "a").string(), (scratch / "b").string()}, scratch / "c");
  REQUIRE(joined.manifest.shards.size() == 3);
  const fs::path sources[] = {scratch / "a" / "shard-00000.zst", scratch / "a" / "shard-00001.zst",
                              scratch / "b" / "shard-00000.zst"};
  for (std::size_t i = 0; i < 3; ++i) {
    const FileEntry& entry = joined.manifest.shards[i];
    CHECK(entry.file == "shard-0000" + std::to_string(i) + ".zst");
    CHECK(entry.hash == (i < 2 ? a.shards[i] : b.shards[0]).hash);
    CHECK(slurp(scratch / "c" / entry.file) == slurp(sources[i]));
    // A temporary folder is one file system, and all that the tests run on have hard links.
    CHECK(inode(scratch / "c" / entry.file) == inode(sources[i]));
  }
  CHECK(joined.linked == 3);
  // The old folders may be removed.
  fs::remove_all(scratch / "a");
  fs::remove_all(scratch / "b");
  CHECK(problem_count(scratch / "c") == 0);
}

TEST_CASE(
    "merge_folders: shards that are symbolic links are taken over as the files that they lead to") {
  const ScratchFolder scratch;
  pack(scratch / "a", {{1, 2, 3}}, header_of(10));
  fs::create_directories(scratch / "store");
  for (const char* name : {"shard-00000.zst", "documents.zst", "manifest.json"}) {
    fs::rename(scratch / "a" / name, scratch / "store" / name);
    fs::create_symlink(fs::path("../store") / name, scratch / "a" / name);
  }
  const std::string data = (scratch / "a").string();
  const Joined joined = join({data, data}, scratch / "deeper" / "c");
  CHECK(joined.linked == 2);
  for (const auto& entry : fs::directory_iterator(scratch / "deeper" / "c")) {
    CHECK(entry.symlink_status().type() == fs::file_type::regular);
  }
  fs::remove_all(scratch / "a");
  fs::remove_all(scratch / "store");
  CHECK(problem_count(scratch / "deeper" / "c") == 0);
}

TEST_CASE("RandomAccessFile::hard_link: a file keeps its bytes under its second name") {
  const ScratchFolder scratch;
  overwrite(scratch / "file", "old");
  const RandomAccessFile file(scratch / "file");
  overwrite(scratch / "fresh", "new");
  CHECK(file.hard_link(scratch / "before"));
  fs::rename(scratch / "fresh", scratch / "file");
  CHECK(file.hard_link(scratch / "after"));
  CHECK(slurp(scratch / "before") == "old");
  CHECK(slurp(scratch / "after") == "old");
  CHECK_FALSE(file.hard_link(scratch / "after"));
  CHECK_FALSE(file.hard_link(scratch / "missing" / "after"));
}

TEST_CASE("merge_folders: shards that cannot be linked are copied") {
  const ScratchFolder scratch;
  const fs::path other = "/dev/shm";
  struct stat here = {}, there = {};
  if (::stat(scratch.path().c_str(), &here) != 0 || ::stat(other.c_str(), &there) != 0 ||
      here.st_dev == there.st_dev || ::access(other.c_str(), W_OK) != 0) {
    MESSAGE("no second file system: not tested");
    return;
  }
  const Documents documents = random_documents(5000, 1000, 21);
  PackOptions options;
  options.shard_tokens = 999;
  options.frame_tokens = 100;
  const Manifest packed = pack(scratch / "a", documents, header_of(1000), options);
  const fs::path target = other / scratch.path().filename();
  for (const int threads : {1, 3}) {
    const Joined joined = join({(scratch / "a").string()}, target, threads, true);
    CHECK(joined.copied == 6);
    CHECK(joined.linked == 0);
    CHECK(problem_count(target) == 0);
    for (const FileEntry& shard : packed.shards) {
      CHECK(slurp(target / shard.file) == slurp(scratch / "a" / shard.file));
    }
  }
  fs::remove_all(target);
}

TEST_CASE("merge_folders: a folder may be joined to itself, into itself, and many times") {
  const ScratchFolder scratch;
  const std::string data = (scratch / "data").string();
  const Documents documents{{1, 2}, {3}};
  pack(data, documents, header_of(10));
  join({data, data}, data, 2, true);
  CHECK(problem_count(data) == 0);
  CHECK(scratch.entries() == 1);
  TokenReader twice(data);
  CHECK(read_all(twice) == std::vector<std::int64_t>{1, 2, 3, 1, 2, 3});
  CHECK(read_document_starts(twice.place(), twice.manifest()) ==
        std::vector<std::int64_t>{0, 2, 3, 5});
  const Joined many = join(std::vector<std::string>(150, data), scratch / "many");
  CHECK(many.manifest.tokens == 900);
  CHECK(many.manifest.documents == 600);
  CHECK(many.manifest.shards.size() == 300);
  CHECK(problem_count(scratch / "many") == 0);
}

TEST_CASE("merge_folders: damaged or exchanged shards are refused, and no files remain") {
  const ScratchFolder scratch;
  PackOptions options;
  options.shard_tokens = 40;
  options.frame_tokens = 10;
  const Documents documents = random_documents(120, 10, 22);
  const std::string good = (scratch / "good").string(), bad = (scratch / "bad").string();
  pack(good, documents, header_of(10), options);
  pack(bad, documents, header_of(10), options);
  const auto refusal = [&](int threads) {
    const std::string text = complaint([&] { join({good, bad, bad}, scratch / "out", threads); });
    CHECK(scratch.entries() == 2);
    return text;
  };
  std::string expected;
  SUBCASE("a flipped bit in a frame") {
    flip_bit(scratch / "bad" / "shard-00001.zst", 20 * 8);
    expected = "bad/shard-00001.zst: frame 0: ";
  }
  SUBCASE("a missing shard, after a damaged one") {
    flip_bit(scratch / "bad" / "shard-00000.zst", 20 * 8);
    fs::remove(scratch / "bad" / "shard-00001.zst");
    expected = "bad/shard-00000.zst: frame 0: ";
  }
  SUBCASE("a missing shard") {
    fs::remove(scratch / "bad" / "shard-00002.zst");
    expected = "bad/shard-00002.zst: cannot open";
  }
  SUBCASE("another shard's content") {
    const Manifest other =
        pack(scratch / "other", {std::vector<TokenId>(40, 3)}, header_of(10), options);
    fs::path file = scratch / "bad" / "shard-00000.zst";
    const std::string content = slurp(scratch / "other" / "shard-00000.zst");
    fs::remove_all(scratch / "other");
    // This manifest, of an earlier version, agrees in everything except the hash.
    Json json = read_json(scratch / "bad" / "manifest.json");
    json["shards"][0]["bytes_compressed"] = content.size();
    json["shards"][0].erase("seek_table_hash");
    json.erase("checksum");
    json["checksum"] = content_hash(json.dump());
    overwrite(scratch / "bad" / "manifest.json", dump_json(json));
    overwrite(file, content);
    expected = "hash mismatch, though the checksums of all frames match";
  }
  SUBCASE("damaged document starts") {
    flip_bit(scratch / "bad" / "documents.zst", 20 * 8);
    expected = "bad/documents.zst: hash mismatch";
  }
  for (const int threads : {1, 4}) {
    const std::string text = refusal(threads);
    CHECK_MESSAGE(contains(text, expected), text);
  }
}

TEST_CASE("merge_folders: impossible counts are named before anything is made") {
  const ScratchFolder scratch;
  const std::string good = (scratch / "good").string(), bad = (scratch / "bad").string();
  pack(good, {{1}}, header_of(10));
  PackWriter writer(bad, header_of(10), {});
  send({{2}}, writer);
  TextCounts counts = kSomeCounts;
  counts.words = INT64_MAX;
  writer.finish(counts);
  CHECK(MultiReader({bad}).counts()->words == INT64_MAX);
  CHECK(
      complaint([&] {
        join({good, bad}, scratch / "around" / "out");
      }) ==
      bad +
          ": a sum of the values in \"counts\" exceeds 2^63 - 1; delete the keys \"counts\" and "
          "\"checksum\" from the manifest with wrong counts: that of this or of an earlier folder");
  CHECK(scratch.entries() == 2);
}

TEST_CASE("merge_folders: the target is protected as in packing") {
  const ScratchFolder scratch;
  const std::string data = (scratch / "data").string();
  pack(data, {{1}}, header_of(10));
  CHECK(contains(complaint([&] { join({data}, data); }), "holds packed data already"));
  overwrite(scratch / "file", "");
  CHECK(contains(complaint([&] { join({data}, scratch / "file", 1, true); }), "is not a folder"));
}

}  // namespace ql::shard
