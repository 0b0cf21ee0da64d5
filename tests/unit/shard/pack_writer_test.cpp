// Tests packing: the bytes of files, levels, and existing folders.

#include <doctest/doctest.h>

#include "shard/shard.h"
#include "shard/zstd_frame.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;
using ql::test::slurp;
using ql::test::spill;

namespace {

const Documents kDocuments{{1, 2, 3}, {4, 5}};

void start_and_give_up(const fs::path& folder, bool force) {
  PackOptions options;
  options.force = force;
  PackWriter writer(folder, header_of(10), options);
  send(kDocuments, writer);
}

}  // namespace

TEST_CASE("PackWriter: no file of an unfinished pack remains") {
  const ScratchFolder scratch;
  start_and_give_up(scratch / "data", false);
  CHECK(scratch.entries() == 0);
}

TEST_CASE("PackWriter: files are the same for any number of threads, and so is what is read") {
  const ScratchFolder scratch;
  for (const std::int64_t vocabulary : {1000, 100000}) {
    const Documents documents = random_documents(20000, vocabulary, 3, 500);
    PackOptions options;
    options.shard_tokens = 3001;
    options.frame_tokens = 100;
    options.force = true;
    pack(scratch / "one", documents, header_of(vocabulary, "words"), options);
    TokenReader one(scratch / "one");
    const std::vector<std::int64_t> all = read_all(one);
    REQUIRE(all == all_ids(documents));
    for (const int threads : {1, 2, 3, 8}) {
      options.threads = threads;
      pack(scratch / "many", documents, header_of(vocabulary, "words"), options);
      for (const auto& file : fs::directory_iterator(scratch / "one")) {
        CAPTURE(file.path());
        CHECK(slurp(scratch / "many" / file.path().filename().string()) == slurp(file.path()));
      }
      for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {0, 20000}, {0, 0}, {99, 101}, {150, 160}, {2950, 9100}, {19999, 20000}}) {
        std::vector<std::int64_t> read;
        one.read_in_order(begin, end, threads, [&](const TokenId* ids, std::size_t count) {
          read.insert(read.end(), ids, ids + count);
        });
        CHECK(read == std::vector<std::int64_t>(all.begin() + begin, all.begin() + end));
      }
      CHECK_THROWS_AS(one.read_in_order(1, 20001, threads, [](const TokenId*, std::size_t) {}),
                      std::out_of_range);
    }
  }
}

TEST_CASE("frame_checksum: the checksum in a frame is that of the seek table") {
  std::string frame, content;
  for (const int bytes_per_id : {0, 2, 4}) {
    for (const int level : {0, 1, 3, 19}) {
      FrameCompressor compressor(level, bytes_per_id);
      for (std::size_t size = 1; size < 5000; size *= 3) {
        const std::string ids(size, static_cast<char>(size));
        frame = compressor.compress(ids);
        CHECK(frame_checksum(frame) == seek_checksum(ids.data(), ids.size()));
        content.resize(size);
        CHECK(FrameDecompressor().decompress(frame, size, content.data()).empty());
        CHECK(content == ids);
      }
    }
  }
  // Descriptor 0x20 is one segment without checksum; then an empty raw block of one byte of
  // content.
  CHECK_FALSE(frame_checksum(std::string("\x28\xB5\x2F\xFD\x20\x01\x09\0\0x", 10)).has_value());
  CHECK_FALSE(frame_checksum("").has_value());
}

TEST_CASE(
    "FrameCompressor: level 0 codes frequent bytes in fewer bits and hardly searches for "
    "repetitions") {
  CHECK(default_level(1024) == 1);
  CHECK(default_level(1025) == 0);
  // In ids below 16 of two bytes half of the bytes are 0 and the others have 4 bits, or 5 bits with
  // 16.
  std::string ids, frame;
  std::uint32_t state = 1;
  for (int i = 0; i < 65536; ++i) {
    state = state * 1664525 + 1013904223;
    ids += {static_cast<char>(state >> 28), '\0'};
  }
  frame = FrameCompressor(0, 2).compress(ids);
  CHECK(frame.size() < ids.size() * 2 / 5);
  // The same ids follow once more, after two other bytes. Level 0 looks for repetitions at too few
  // positions to find them. Level 1 finds them.
  const std::string twice = ids + std::string(2, '\0') + ids;
  frame = FrameCompressor(0, 2).compress(twice);
  const std::string searched = FrameCompressor(1, 2).compress(twice);
  CHECK(frame.size() > ids.size() / 2);
  CHECK(searched.size() < frame.size());
}

TEST_CASE("PackWriter: an existing folder does not change until the new one is complete") {
  const ScratchFolder scratch;
  pack(scratch / "data", kDocuments, header_of(10));
  const std::string manifest = slurp(scratch / "data" / "manifest.json");
  const std::string refusal = complaint([&] { pack(scratch / "data", {{1}}, header_of(10)); });
  CHECK(contains(refusal, "holds packed data already"));
  CHECK(contains(refusal, "--force"));
  start_and_give_up(scratch / "data", true);
  CHECK(slurp(scratch / "data" / "manifest.json") == manifest);
  CHECK(scratch.entries() == 1);

  PackOptions force;
  force.force = true;
  pack(scratch / "data", {{9}}, header_of(10), force);
  TokenReader reader(scratch / "data");
  CHECK(read_all(reader) == std::vector<std::int64_t>{9});
  CHECK(scratch.entries() == 1);
}

TEST_CASE("PackWriter: a folder with anything else in it is never replaced") {
  const ScratchFolder scratch;
  PackOptions force;
  force.force = true;
  const auto refusal = [&] {
    return complaint([&] { pack(scratch / "data", kDocuments, header_of(10), force); });
  };
  SUBCASE("a file of the user's") {
    pack(scratch / "data", kDocuments, header_of(10));
    spill(scratch / "data" / "notes.txt", "mine");
    CHECK(contains(refusal(), "\"notes.txt\", which is not a file that qlbin writes"));
  }
  SUBCASE("a folder of the user's") {
    pack(scratch / "data", kDocuments, header_of(10));
    fs::create_directory(scratch / "data" / "shard-00001.zst");
    CHECK(contains(refusal(), "\"shard-00001.zst\""));
  }
  SUBCASE("no manifest") {
    fs::create_directory(scratch / "data");
    spill(scratch / "data" / "vocabulary.json", "{}");
    CHECK(contains(refusal(), "has no manifest.json"));
  }
  SUBCASE("a file instead of a folder") {
    spill(scratch / "data", "mine");
    CHECK(contains(refusal(), "is not a folder"));
  }
  SUBCASE("a link to packed data") {
    pack(scratch / "real", kDocuments, header_of(10));
    fs::create_directory_symlink("real", scratch / "data");
    CHECK(contains(refusal(), "is a symbolic link, not a folder itself"));
  }
  CHECK(fs::exists(scratch / "data"));
}

TEST_CASE(
    "PackWriter: an empty folder may be used, parents are made, a trailing slash is allowed") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "data");
  pack(scratch / "data", kDocuments, header_of(10));
  pack((scratch / "new/parent/data/").string(), kDocuments, header_of(10));
  TokenReader reader(scratch / "new/parent/data");
  CHECK(reader.tokens() == 5);
  for (const char* name : {"", ".", "..", "/", "a/.."}) {
    CHECK_THROWS_AS(check_pack_target(name, false), UsageError);
  }
}

TEST_CASE("PackWriter: sizes that the format cannot hold are refused") {
  const ScratchFolder scratch;
  const auto refusal = [&](std::int64_t shard_tokens, std::int64_t frame_tokens,
                           std::int64_t vocabulary) {
    PackOptions options;
    options.shard_tokens = shard_tokens;
    options.frame_tokens = frame_tokens;
    return complaint([&] { PackWriter writer(scratch / "data", header_of(vocabulary), options); });
  };
  CHECK(contains(refusal(100, 0, 10), "expected 1 to 33554432"));
  CHECK(contains(refusal(100, (32 << 20) + 1, 10), "expected 1 to 33554432"));
  CHECK(contains(refusal(100, (16 << 20) + 1, 70000), "expected 1 to 16777216"));
  CHECK(contains(refusal(0, 10, 10), "at least one token"));
  CHECK(contains(refusal(kMostFrames + 1, 1, 10), "use smaller shards (--shard-tokens)"));
  CHECK(contains(refusal(INT64_MAX, 65536, 10), "use smaller shards (--shard-tokens)"));
  CHECK(refusal(kMostFrames, 1, 10).empty());
  CHECK(refusal(100, 32 << 20, 10).empty());
}

TEST_CASE("PackWriter: the same tokens give the same bytes, in whatever pieces they come") {
  const ScratchFolder scratch;
  const Documents documents = random_documents(300, 10, 11);
  PackOptions options;
  options.shard_tokens = 100;
  options.frame_tokens = 30;
  pack(scratch / "once", documents, header_of(10, "v"), options);
  PackWriter writer(scratch / "pieces", header_of(10, "v"), options);
  for (const auto& document : documents) {
    writer.begin_document();
    for (const TokenId id : document) writer.write(&id, 1);
  }
  writer.finish(kSomeCounts);
  for (const char* file : {"manifest.json", "documents.zst", "vocabulary.json", "shard-00000.zst",
                           "shard-00001.zst", "shard-00002.zst"})
    CHECK(slurp(scratch / "once" / file) == slurp(scratch / "pieces" / file));
}

TEST_CASE("PackWriter: misuse is a programming error") {
  const ScratchFolder scratch;
  PackWriter writer(scratch / "data", header_of(10), {});
  const TokenId outside = 10;
  CHECK_THROWS_AS(writer.write(&outside, 1), std::logic_error);
  writer.finish(std::nullopt);
  CHECK_THROWS_AS(writer.finish(std::nullopt), std::logic_error);
  const TokenId id = 1;
  CHECK_THROWS_AS(writer.write(&id, 1), std::logic_error);
}

}  // namespace ql::shard
