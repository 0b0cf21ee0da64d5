// Tests reading at random places, compared with a plain list.

#include <doctest/doctest.h>

#include <set>

#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;

namespace {

struct Sizes {
  std::int64_t shard_tokens, frame_tokens;
};

// Compares random ranges, read by random cursors, with the plain list.
void check_against_list(TokenReader& reader, const std::vector<std::int64_t>& ids, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto total = static_cast<std::int64_t>(ids.size());
  std::vector<std::int64_t> out;
  for (int round = 0; round < 200; ++round) {
    const auto begin = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(total + 1));
    const auto count =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(total - begin + 1));
    out.assign(static_cast<std::size_t>(count), -1);
    reader.read(begin, count, out.data(), random() % 5);
    REQUIRE(out == std::vector<std::int64_t>(ids.begin() + begin, ids.begin() + begin + count));
  }
}

}  // namespace

TEST_CASE(
    "TokenReader: random ranges equal those of a plain list, whatever the shards and frames") {
  for (const std::int64_t vocabulary : {300, 70000}) {
    const Documents documents = random_documents(257, vocabulary, 5);
    std::set<std::string> hashes;
    for (const Sizes& sizes : {Sizes{1000, 1000}, Sizes{257, 257}, Sizes{256, 16}, Sizes{100, 7},
                               Sizes{64, 64}, Sizes{30, 100}, Sizes{50, 1}, Sizes{33, 2}}) {
      CAPTURE(sizes.shard_tokens);
      CAPTURE(sizes.frame_tokens);
      const ScratchFolder scratch;
      PackOptions options;
      options.shard_tokens = sizes.shard_tokens;
      options.frame_tokens = sizes.frame_tokens;
      const Manifest packed =
          pack(scratch / "data", documents, header_of(vocabulary, "words"), options);
      TokenReader reader(scratch / "data");
      CHECK(reader.tokens() == 257);
      CHECK(reader.documents() == static_cast<std::int64_t>(documents.size()));
      CHECK(read_document_starts(reader.place(), reader.manifest()) == all_starts(documents));
      CHECK(reader.vocabulary() == header_of(vocabulary).vocabulary);
      CHECK(reader.vocabulary_text() == "words");
      CHECK(reader.manifest().checksum == packed.checksum);
      CHECK(packed.shards.size() ==
            static_cast<std::size_t>((257 + sizes.shard_tokens - 1) / sizes.shard_tokens));
      check_against_list(reader, all_ids(documents), 6);
      hashes.insert(reader.hash());
    }
    CHECK_MESSAGE(hashes.size() == 1, "the data's hash must not depend on how it is packed");
  }
}

TEST_CASE("TokenReader::hash: distinguishes ids from document starts") {
  const ScratchFolder scratch;
  std::set<std::string> hashes;
  int number = 0;
  for (const Documents& documents : {Documents{{1, 2, 3}}, Documents{{1, 2}, {3}},
                                     Documents{{1}, {2, 3}}, Documents{{1, 2, 4}}, Documents{}}) {
    const fs::path folder = scratch / std::to_string(number++);
    hashes.insert(pack(folder, documents, header_of(10)).data_hash);
  }
  CHECK(hashes.size() == 5);
}

TEST_CASE("TokenReader: data without tokens is good data") {
  const ScratchFolder scratch;
  pack(scratch / "data", {}, header_of(10));
  TokenReader reader(scratch / "data");
  CHECK(reader.tokens() == 0);
  CHECK(reader.documents() == 0);
  CHECK(read_document_starts(reader.place(), reader.manifest()).empty());
  CHECK(reader.vocabulary_text().empty());
  reader.read(0, 0, nullptr);
  std::int64_t id = 0;
  CHECK_THROWS_AS(reader.read(0, 1, &id), std::out_of_range);
}

TEST_CASE("TokenReader: reads outside the data are refused") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2, 3}}, header_of(10));
  TokenReader reader(scratch / "data" / "manifest.json");
  CHECK(reader.name() == (scratch / "data").string());
  std::int64_t out[4] = {};
  CHECK_THROWS_AS(reader.read(-1, 1, out), std::out_of_range);
  CHECK_THROWS_AS(reader.read(0, 4, out), std::out_of_range);
  CHECK_THROWS_AS(reader.read(4, 0, out), std::out_of_range);
  CHECK_THROWS_AS(reader.read(0, -1, out), std::out_of_range);
  CHECK_THROWS_AS(reader.read(INT64_MAX, INT64_MAX, out), std::out_of_range);
  CHECK_THROWS_AS(reader.read(0, 1, out, SIZE_MAX), std::out_of_range);
  reader.read(3, 0, out);
}

TEST_CASE("TokenReader: more shards than may be open at once") {
  const ScratchFolder scratch;
  // These are also the smallest possible shards and frames.
  const Documents documents = random_documents(80, 50, 7);
  PackOptions options;
  options.shard_tokens = 1;
  options.frame_tokens = 1;
  pack(scratch / "data", documents, header_of(50), options);
  TokenReader reader(scratch / "data");
  check_against_list(reader, all_ids(documents), 8);
  const auto open_files =
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  CHECK(open_files < 75);
}

TEST_CASE("TokenReader: a shard of other data and the same size is refused when it is read") {
  const ScratchFolder scratch;
  PackOptions options;
  options.shard_tokens = 40;
  options.frame_tokens = 10;
  options.level = 0;
  pack(scratch / "data", random_documents(80, 50, 7), header_of(50), options);
  pack(scratch / "other", random_documents(80, 50, 8), header_of(50), options);
  const fs::path manifest = scratch / "data" / "manifest.json";
  const fs::path shard = scratch / "data" / "shard-00001.zst";
  const std::int64_t size = static_cast<std::int64_t>(fs::file_size(shard));
  // An interrupted copy of "other" leaves such a folder.
  fs::copy_file(scratch / "other" / "shard-00001.zst", shard, fs::copy_options::overwrite_existing);
  REQUIRE(static_cast<std::int64_t>(fs::file_size(shard)) == size);
  std::int64_t out[40];
  {
    TokenReader reader(scratch / "data");
    reader.read(0, 40, out);
    CHECK(contains(complaint([&] { reader.read(39, 2, out); }),
                   "shard-00001.zst: this shard holds other data than those that the manifest"));
  }
  // Manifests of earlier versions lack the hash of the seek table.
  Json json = read_json(manifest);
  json["shards"][1].erase("seek_table_hash");
  json.erase("checksum");
  json["checksum"] = content_hash(json.dump());
  overwrite(manifest, dump_json(json));
  TokenReader reader(scratch / "data");
  reader.read(40, 40, out);
}

TEST_CASE("TokenReader: a reader whose files were closed opens them again") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2, 3}}, header_of(10));
  TokenReader reader(scratch / "data");
  CHECK(read_all(reader) == std::vector<std::int64_t>{1, 2, 3});
  reader.close_files();
  CHECK(read_all(reader) == std::vector<std::int64_t>{1, 2, 3});
  reader.close_files();
  fs::remove(scratch / "data" / "shard-00000.zst");
  CHECK_THROWS_AS(read_all(reader), Error);
}

}  // namespace ql::shard
