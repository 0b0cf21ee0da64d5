// Flips every bit of every file of a packed folder, and cuts every file at every length.
#include <doctest/doctest.h>

#include "shard/verify.h"
#include "unit/damage.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::cuts;
using ql::test::Damages;
using ql::test::flipped_bits;
using ql::test::ScratchFolder;
using ql::test::slurp;

namespace {

const Documents kDocuments{{1, 2, 3, 4, 5}, {6}, {7, 8}};
const char* const kVocabularyText = "{\"words\": []}\n";

void pack_small(const fs::path& folder) {
  PackOptions options;
  options.shard_tokens = 5;
  options.frame_tokens = 3;
  pack(folder, kDocuments, header_of(70, kVocabularyText), options);
}

std::vector<std::string> problems(const fs::path& folder, int threads) {
  std::vector<std::string> found;
  const Verification result = verify_folder(
      folder, [&](const std::string& problem) { found.push_back(problem); }, [](std::int64_t) {},
      threads);
  CHECK(result.problems == static_cast<std::int64_t>(found.size()));
  return found;
}

// Returns the problems, which must be the same for one thread and for three.
std::vector<std::string> problems(const fs::path& folder) {
  const std::vector<std::string> found = problems(folder, 1);
  CHECK(problems(folder, 3) == found);
  return found;
}

// Checks that reading damaged data throws an Error or gives the packed tokens, and nothing else.
void check_never_wrong(const fs::path& folder) {
  std::optional<TokenReader> reader;
  const auto gives = [&](const auto& read, const auto& packed) {
    bool good = true;
    const std::string text = complaint([&] { good = read() == packed; });
    CHECK((good && (text.empty() || contains(text, folder.string()))));
  };
  gives([&] { return reader.emplace(folder).tokens(); }, 8);
  if (!reader) return;
  gives([&] { return reader->vocabulary(); }, header_of(70).vocabulary);
  gives([&] { return read_document_starts(reader->place(), reader->manifest()); },
        all_starts(kDocuments));
  gives([&] { return read_all(*reader); }, all_ids(kDocuments));
  gives([&] { return reader->vocabulary_text(); }, kVocabularyText);
}

std::vector<fs::path> files_of(const fs::path& folder) {
  return {fs::directory_iterator(folder), fs::directory_iterator()};
}

}  // namespace

TEST_CASE("verify_folder: good data has no problems") {
  const ScratchFolder scratch;
  pack_small(scratch / "data");
  CHECK(problems(scratch / "data").empty());
  CHECK(files_of(scratch / "data").size() == 5);
}

TEST_CASE(
    "verify_folder: every flipped bit of a packed folder is found, and none gives wrong data") {
  const ScratchFolder scratch;
  pack_small(scratch / "data");
  for (const fs::path& file : files_of(scratch / "data")) {
    CAPTURE(file);
    const std::string good = slurp(file);
    for (const auto& [what, bytes] : flipped_bits(good)) {
      CAPTURE(what);
      overwrite(file, bytes);
      const std::vector<std::string> found = problems(scratch / "data");
      REQUIRE_FALSE(found.empty());
      CHECK_MESSAGE(contains(found.front(), file.string()), found.front());
      check_never_wrong(scratch / "data");
    }
    overwrite(file, good);
  }
  CHECK(problems(scratch / "data").empty());
}

TEST_CASE("verify_folder: every cut, lengthened or missing file is found") {
  const ScratchFolder scratch;
  pack_small(scratch / "data");
  for (const fs::path& file : files_of(scratch / "data")) {
    CAPTURE(file);
    const std::string good = slurp(file);
    for (const auto& [what, bytes] : cuts(good)) {
      CAPTURE(what);
      overwrite(file, bytes);
      REQUIRE_FALSE(problems(scratch / "data").empty());
      check_never_wrong(scratch / "data");
    }
    for (const std::string& tail : {std::string(1, '\0'), std::string("\n"), good}) {
      overwrite(file, good + tail);
      CHECK_FALSE(problems(scratch / "data").empty());
      check_never_wrong(scratch / "data");
    }
    fs::remove(file);
    CHECK_FALSE(problems(scratch / "data").empty());
    check_never_wrong(scratch / "data");
    overwrite(file, good);
  }
}

TEST_CASE("verify_folder: no damage to a packed folder goes unnoticed or gives wrong data") {
  const ScratchFolder scratch;
  pack_small(scratch / "data");
  for (const fs::path& file : files_of(scratch / "data")) {
    CAPTURE(file);
    const std::string good = slurp(file);
    for (const auto& [what, bytes] : Damages(good, 100)) {
      CAPTURE(what);
      overwrite(file, bytes);
      REQUIRE_FALSE(problems(scratch / "data").empty());
      check_never_wrong(scratch / "data");
    }
    overwrite(file, good);
  }
  CHECK(problems(scratch / "data").empty());
}

TEST_CASE("verify_folder: each bad place is named, not only the first") {
  const ScratchFolder scratch;
  pack_small(scratch / "data");
  const fs::path data = scratch / "data";
  const std::string shard = slurp(data / "shard-00000.zst");
  std::string damaged = shard;
  // These bytes are inside the first and the second frame's content.
  damaged[10] = static_cast<char>(damaged[10] ^ 1);
  damaged[30] = static_cast<char>(damaged[30] ^ 1);
  overwrite(data / "shard-00000.zst", damaged);
  overwrite(data / "vocabulary.json", "");
  fs::remove(data / "documents.zst");
  const std::vector<std::string> found = problems(data);
  REQUIRE(found.size() == 4);
  CHECK(contains(found[0], "vocabulary.json"));
  CHECK(contains(found[1], "shard-00000.zst: frame 0: "));
  CHECK(contains(found[2], "shard-00000.zst: frame 1: "));
  CHECK(contains(found[3], "documents.zst"));
}

TEST_CASE("verify_folder: exchanged shards are found") {
  const ScratchFolder scratch;
  PackOptions options;
  options.shard_tokens = 2;
  pack(scratch / "data", {{1, 2, 3, 4}}, header_of(10), options);
  fs::rename(scratch / "data" / "shard-00000.zst", scratch / "swap");
  fs::rename(scratch / "data" / "shard-00001.zst", scratch / "data" / "shard-00000.zst");
  fs::rename(scratch / "swap", scratch / "data" / "shard-00001.zst");
  const std::vector<std::string> found = problems(scratch / "data");
  REQUIRE(found.size() == 2);
  CHECK(contains(found[0], "this shard holds other data than those that the manifest describes"));
}

TEST_CASE("ShardReader: a shard that is cut while it is read gives an error") {
  const ScratchFolder scratch;
  PackOptions options;
  options.frame_tokens = 10;
  const Documents documents = random_documents(1000, 10, 12);
  pack(scratch / "data", documents, header_of(10), options);
  TokenReader reader(scratch / "data");
  std::int64_t ids[1000];
  reader.read(0, 10, ids);
  fs::resize_file(scratch / "data" / "shard-00000.zst", 100);
  const std::string text = complaint([&] { reader.read(0, 1000, ids); });
  CHECK(contains(text, "shard-00000.zst: too short: expected "));
  CHECK(contains(text, " bytes, found 100 or fewer"));
}

TEST_CASE("verify_folder: a folder that is not a packed folder is reported") {
  const ScratchFolder scratch;
  CHECK(contains(complaint([&] { TokenReader reader(scratch.path()); }), "no manifest.json"));
  CHECK(contains(complaint([&] { TokenReader reader(scratch / "none"); }), "cannot open"));
  CHECK(problems(scratch / "none").size() == 1);
}

TEST_CASE("verify_folder: shards that a manifest lists in another order are found") {
  const ScratchFolder scratch;
  PackOptions options;
  options.shard_tokens = 2;
  Manifest manifest = pack(scratch / "data", {{1, 2, 3, 4}}, header_of(10), options);
  std::swap(manifest.shards[0], manifest.shards[1]);
  overwrite(scratch / "data" / "manifest.json", dump_json(manifest_to_json(manifest)));
  const std::vector<std::string> found = problems(scratch / "data");
  REQUIRE(found.size() == 1);
  CHECK(contains(found[0], "the hash of the data differs from that in the manifest"));
}

TEST_CASE("verify_folder: progress goes from shard to shard up to all tokens") {
  const ScratchFolder scratch;
  pack_small(scratch / "data");
  std::vector<std::int64_t> seen;
  verify_folder(
      scratch / "data", [](const std::string&) {},
      [&seen](std::int64_t done) { seen.push_back(done); }, 1);
  CHECK(seen == std::vector<std::int64_t>{3, 5, 8});
}

}  // namespace ql::shard
