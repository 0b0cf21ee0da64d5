// Tests a corpus of 10^13 tokens in 100,000 shards, only a few of which exist.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>

#include "base/bytes.h"
#include "base/rows.h"
#include "shard/manifest.h"
#include "shard/multi_reader.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;

namespace {

constexpr std::size_t kShards = 100'000;
constexpr std::int64_t kTokens = 10'000'000'000'000;
constexpr std::int64_t kRealTokens = 1000;
// These shards exist: the first, the last, and two in between.
const std::size_t kReal[] = {0, 31'415, 77'777, kShards - 1};

bool is_real(std::size_t shard) {
  return std::find(std::begin(kReal), std::end(kReal), shard) != std::end(kReal);
}

// Returns the id at `place` of an existing shard.
std::int64_t id_at(std::size_t shard, std::int64_t place) {
  return (static_cast<std::int64_t>(shard) * 31 + place * 7) % 50'000;
}

// Writes the folder and returns where each existing shard begins.
std::vector<std::int64_t> make_large(const ScratchFolder& scratch, const fs::path& folder) {
  fs::create_directory(folder);
  Manifest manifest;
  manifest.vocabulary = header_of(50'000).vocabulary;
  manifest.data_hash = std::string(32, '0');
  const auto made_up = static_cast<std::int64_t>(kShards - std::size(kReal));
  std::vector<std::int64_t> begins;
  PackOptions options;
  options.frame_tokens = 64;
  for (std::size_t i = 0; i < kShards; ++i) {
    FileEntry entry;
    if (is_real(i)) {
      std::vector<TokenId> ids;
      for (std::int64_t place = 0; place < kRealTokens; ++place) {
        ids.push_back(static_cast<TokenId>(id_at(i, place)));
      }
      const fs::path part = scratch / ("part" + std::to_string(i));
      entry = pack(part, {ids}, header_of(50'000), options).shards.front();
      entry.file = fmt::format("shard-{:05}.zst", i);
      fs::rename(part / "shard-00000.zst", folder / entry.file);
      begins.push_back(manifest.tokens);
    } else {
      // The others share the remaining tokens; the first of them takes the remainder.
      const std::int64_t left = kTokens - kRealTokens * static_cast<std::int64_t>(std::size(kReal));
      entry.file = fmt::format("shard-{:05}.zst", i);
      entry.tokens = left / made_up + (i == 1 ? left % made_up : 0);
      entry.bytes = 2 * entry.tokens;
      entry.bytes_compressed = entry.tokens;
      entry.hash = content_hash(entry.file);
    }
    manifest.tokens += entry.tokens;
    manifest.shards.push_back(entry);
  }
  manifest.documents = manifest.tokens / 1000;
  manifest.document_starts = {"documents.zst", 8 * manifest.documents, 1 << 20,
                              std::string(32, '0')};
  overwrite(folder / "manifest.json", dump_json(manifest_to_json(manifest)));
  return begins;
}

struct Seconds {
  double wall = 0, processor = 0;
};

Seconds seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t processor_start = std::clock();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC};
}

}  // namespace

TEST_CASE("TokenReader: a manifest of 10^13 tokens opens at once and is read at any position") {
  const ScratchFolder scratch;
  const fs::path folder = scratch / "large";
  const std::vector<std::int64_t> begins = make_large(scratch, folder);
  const Seconds taken = seconds_of([&] { TokenReader reader(folder); });
  MESSAGE("100,000 shards open in " << taken.wall << " s, " << taken.processor
                                    << " s of a processor");
  // This is processor time, because other programs may be busy. Sanitizers have no limit.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(taken.processor < 20);
#endif

  TokenReader reader(folder);
  CHECK(reader.tokens() == kTokens);
  CHECK(reader.documents() == kTokens / 1000);
  REQUIRE(begins.size() == std::size(kReal));
  CHECK(begins.back() == kTokens - kRealTokens);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    CAPTURE(kReal[i]);
    for (const std::int64_t place : {0, 1, 63, 64, 500, 999}) {
      std::int64_t id = -1;
      reader.read(begins[i] + place, 1, &id, i);
      CHECK(id == id_at(kReal[i], place));
    }
    // Reads the complete shard, by a cursor and in order.
    std::vector<std::int64_t> expected, read(kRealTokens);
    for (std::int64_t place = 0; place < kRealTokens; ++place) {
      expected.push_back(id_at(kReal[i], place));
    }
    reader.read(begins[i], kRealTokens, read.data(), i);
    CHECK(read == expected);
    read.clear();
    reader.read_in_order(
        begins[i], begins[i] + kRealTokens, 2,
        [&](const TokenId* ids, std::size_t count) { read.insert(read.end(), ids, ids + count); });
    CHECK(read == expected);
  }
  // Reading the neighbours fails, and the message names the file.
  std::int64_t id = 0;
  const auto verdict = [&](std::int64_t position) {
    return complaint([&] { reader.read(position, 1, &id); });
  };
  CHECK(contains(verdict(begins[1] - 1), "shard-31414.zst: cannot open"));
  CHECK(contains(verdict(begins[1] + kRealTokens), "shard-31416.zst: cannot open"));
  CHECK(contains(verdict(kRealTokens), "shard-00001.zst: cannot open"));
  // The tokens before a missing shard are still read.
  std::vector<TokenId> before;
  CHECK(contains(complaint([&] {
                   reader.read_in_order(begins[2] + 900, begins[2] + 2000, 3,
                                        [&](const TokenId* ids, std::size_t count) {
                                          before.insert(before.end(), ids, ids + count);
                                        });
                 }),
                 "shard-77778.zst: cannot open"));
  CHECK(before.size() == 100);
  // Only a caller that needs document starts misses them.
  CHECK(contains(complaint([&] { read_document_starts(reader.place(), reader.manifest()); }),
                 "documents.zst: cannot open"));
  // The data can be joined and described without the files, too.
  const MultiReader data({folder.string(), folder.string(), folder.string()});
  CHECK(data.tokens() == 3 * kTokens);
  CHECK(data.documents() == 3 * (kTokens / 1000));
  const TokenRange range = parse_range("29999999999999:", data.tokens(), "range", "tokens");
  CHECK(range.begin == 3 * kTokens - 1);
  const Manifest manifest = read_manifest(find_packed_folder(folder));
  CHECK(contains(summary_text("large", manifest), "10,000,000,000,000"));
  CHECK(contains(TableText("all", 0).lines(summary_row("large", manifest)),
                 "\t10000000000000\t10000000000\tu16\t"));
}

}  // namespace ql::shard
