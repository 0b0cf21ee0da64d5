// Tests several folders as one sequence, compared with a plain list.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <stdexcept>

#include "base/log.h"
#include "shard/manifest.h"
#include "shard/multi_reader.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;

namespace {

// Returns the documents in a range of tokens of a list: the oracle of MultiReader::copy.
Documents cut(const Documents& documents, TokenRange range) {
  Documents part;
  std::int64_t position = 0;
  for (const auto& document : documents) {
    std::vector<TokenId> ids;
    for (const TokenId id : document) {
      if (position >= range.begin && position < range.end) ids.push_back(id);
      ++position;
    }
    if (!ids.empty()) part.push_back(ids);
  }
  return part;
}

Documents copied(MultiReader& data, TokenRange range) {
  ListSink sink;
  data.copy(range, 2, sink, [](std::int64_t) {});
  return sink.documents;
}

// Packs a folder whose manifest has the keys "key FIRST" and so on, all with one value.
std::string pack_with_keys(const fs::path& folder, int first, int count, int value = 0) {
  Json keys = Json::object();
  for (int i = 0; i < count; ++i) keys["key " + std::to_string(first + i)] = value;
  PackWriter writer(folder, header_of(50), {});
  writer.keep_unknown(keys);
  send({{1}}, writer);
  writer.finish(std::nullopt);
  return folder.string();
}

}  // namespace

TEST_CASE("MultiReader::copy: every range over several folders equals that of a plain list") {
  const ScratchFolder scratch;
  Documents all;
  std::vector<std::string> folders;
  for (const std::size_t tokens : {11U, 0U, 1U, 20U}) {
    const Documents documents = random_documents(tokens, 50, static_cast<unsigned>(tokens), 5);
    folders.push_back((scratch / std::to_string(tokens)).string());
    PackOptions options;
    options.frame_tokens = 3;
    options.shard_tokens = 8;
    pack(folders.back(), documents, header_of(50), options);
    all.insert(all.end(), documents.begin(), documents.end());
  }
  MultiReader data(folders);
  CHECK(data.tokens() == 32);
  CHECK(data.documents() == static_cast<std::int64_t>(all.size()));
  CHECK(data.counts()->bytes == 4 * kSomeCounts.bytes);
  for (std::int64_t begin = 0; begin <= 32; ++begin) {
    for (std::int64_t end = begin; end <= 32; ++end) {
      CHECK(copied(data, {begin, end}) == cut(all, {begin, end}));
    }
  }
  const std::int64_t documents = data.documents();
  for (std::int64_t begin = 0; begin <= documents; ++begin) {
    for (std::int64_t end = begin; end <= documents; ++end) {
      CHECK(copied(data, data.tokens_of_documents({begin, end})) ==
            Documents(all.begin() + begin, all.begin() + end));
    }
  }
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{-1, 1}, {2, 1}, {0, 33}, {33, 33}}) {
    CHECK_THROWS_AS(copied(data, {begin, end}), std::out_of_range);
  }
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{-1, 1}, {2, 1}, {0, documents + 1}}) {
    CHECK_THROWS_AS(data.tokens_of_documents({begin, end}), std::out_of_range);
  }
}

TEST_CASE("MultiReader::read: cursors read across folders, at every place") {
  const ScratchFolder scratch;
  std::vector<TokenId> all;
  std::vector<std::int64_t> starts;
  std::vector<std::string> folders;
  for (const std::size_t tokens : {9U, 0U, 1U, 14U, 6U}) {
    const Documents documents = random_documents(tokens, 50, static_cast<unsigned>(tokens), 4);
    folders.push_back((scratch / std::to_string(tokens)).string());
    PackOptions options;
    options.frame_tokens = 2;
    options.shard_tokens = 4;
    pack(folders.back(), documents, header_of(50), options);
    for (const auto& document : documents) {
      starts.push_back(static_cast<std::int64_t>(all.size()));
      all.insert(all.end(), document.begin(), document.end());
    }
  }
  MultiReader data(folders);
  CHECK(data.name() == folders.front() + " and 4 more");
  CHECK(data.document_starts() == starts);
  const auto size = static_cast<std::int64_t>(all.size());
  std::vector<std::int64_t> out(all.size());
  // Cursor 0 goes forward through all places, cursor 1 backward, and cursor 2 stays.
  for (std::int64_t count = 0; count <= size; ++count) {
    for (std::int64_t place = 0; place + count <= size; ++place) {
      const std::int64_t begins[] = {place, size - count - place, 3};
      for (std::size_t cursor = 0; cursor < 3; ++cursor) {
        const std::int64_t begin = begins[cursor];
        if (begin + count > size) continue;
        data.read(begin, count, out.data(), cursor);
        CHECK(std::equal(out.begin(), out.begin() + count, all.begin() + begin));
      }
    }
  }
  CHECK_THROWS_AS(data.read(size, 1, out.data()), std::out_of_range);
  CHECK_THROWS_AS(data.read(-1, 1, out.data()), std::out_of_range);
}

TEST_CASE("MultiReader::hash: of one folder its own, of several that of all in their order") {
  const ScratchFolder scratch;
  pack(scratch / "a", {{1}}, header_of(50));
  pack(scratch / "b", {{2}}, header_of(50));
  const std::string a = (scratch / "a").string(), b = (scratch / "b").string();
  CHECK(MultiReader({a}).hash() == TokenReader(a).hash());
  CHECK(MultiReader({a, b}).hash() == MultiReader({a, b}).hash());
  CHECK(MultiReader({a, b}).hash() != MultiReader({b, a}).hash());
  CHECK(MultiReader({a, b}).hash() != MultiReader({a}).hash());
}

TEST_CASE("MultiReader::read: thousands of folders need no more open files than cursors") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1, 2}}, header_of(50));
  MultiReader data(std::vector<std::string>(600, (scratch / "data").string()));
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  std::int64_t ids[3];
  for (std::int64_t place = 0; place + 3 <= data.tokens(); ++place) {
    data.read(place, 3, ids, 0);
    data.read(data.tokens() - 3 - place, 3, ids, 1);
    REQUIRE(open_files() - before <= 4);
  }
}

TEST_CASE("MultiReader::copy: a large range comes in pieces and keeps its documents") {
  const ScratchFolder scratch;
  const Documents documents = random_documents(300000, 50, 15, 100000);
  pack(scratch / "data", documents, header_of(50));
  MultiReader data({(scratch / "data").string()});
  CHECK(copied(data, {0, 300000}) == documents);
}

TEST_CASE("MultiReader: different vocabularies are refused") {
  const ScratchFolder scratch;
  StreamHeader other = header_of(50);
  other.vocabulary.hash = "other";
  pack(scratch / "a", {{1}}, header_of(50));
  pack(scratch / "b", {{1}}, other);
  const std::string text = complaint([&] {
    MultiReader data({(scratch / "a").string(), (scratch / "b").string()});
  });
  CHECK(contains(text, "only data that record the same vocabulary can be joined"));
}

TEST_CASE("MultiReader::vocabulary_text: a damaged vocabulary of any folder is noticed") {
  const ScratchFolder scratch;
  std::vector<std::string> folders;
  for (const char* name : {"a", "b", "c"}) {
    folders.push_back((scratch / name).string());
    pack(folders.back(), {{1}}, header_of(50, name == std::string("b") ? "" : "words"));
  }
  CHECK(MultiReader(folders).header(Json::object()).vocabulary_text == "words");
  for (const char* name : {"a", "c"}) {
    overwrite(scratch / name / "vocabulary.json", "wards");
    CHECK(contains(complaint([&] { MultiReader(folders).header(Json::object()); }),
                   std::string(name) + "/vocabulary.json: hash mismatch"));
    overwrite(scratch / name / "vocabulary.json", "words");
  }
}

TEST_CASE("MultiReader::unknown_keys: kept in their order, except those with different values") {
  const ScratchFolder scratch;
  const MultiReader data({pack_with_keys(scratch / "a", 2, 3), pack_with_keys(scratch / "b", 0, 4),
                          pack_with_keys(scratch / "c", 3, 3, 1),
                          pack_with_keys(scratch / "d", 3, 3)});
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel, const std::string& line) { warnings.push_back(line); });
  const Json kept = data.unknown_keys();
  set_log_sink(nullptr);
  CHECK(kept.dump() == R"({"key 2":0,"key 0":0,"key 1":0})");
  REQUIRE(warnings.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(contains(warnings[i], "'key " + std::to_string(3 + i) + "'"));
  }
}

TEST_CASE("MultiReader::unknown_keys: together not more than a manifest may have") {
  const ScratchFolder scratch;
  const std::string a = pack_with_keys(scratch / "a", 0, 600);
  const std::string b = pack_with_keys(scratch / "b", 500, 500);
  const std::string c = pack_with_keys(scratch / "c", 999, 2);
  CHECK(MultiReader({a, b, a}).unknown_keys().size() == 1000);
  CHECK(
      contains(complaint([&] {
                 MultiReader({a, b, c}).unknown_keys();
               }),
               "c: the manifests have more than 1000 different unknown keys; delete some of them; "
               "delete \"checksum\" in each manifest that you change"));
}

TEST_CASE("PackWriter: a manifest that nobody could read is not written") {
  const ScratchFolder scratch;
  CHECK(contains(complaint([&] { pack_with_keys(scratch / "a", 0, 1001); }),
                 "a/manifest.json: the manifest has more than 1000 unknown keys"));
  CHECK(scratch.entries() == 0);
  pack_with_keys(scratch / "a", 0, 1000);
  CHECK(TokenReader(scratch / "a").manifest().unknown.size() == 1000);
}

TEST_CASE("parse_range: ranges are read strictly") {
  const auto range = [](const std::string& text) {
    const TokenRange parsed = parse_range(text, 10'000, "range", "tokens");
    return std::make_pair(parsed.begin, parsed.end);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  CHECK(range("2:5") == Pair(2, 5));
  CHECK(range(":5") == Pair(0, 5));
  CHECK(range("1k:") == Pair(1000, 10'000));
  CHECK(range(":") == Pair(0, 10'000));
  CHECK(range("10k:10k") == Pair(10'000, 10'000));
  CHECK(range("-1k:") == Pair(9000, 10'000));
  CHECK(range(":-1k") == Pair(0, 9000));
  CHECK(range("-10k:-1") == Pair(0, 9999));
  CHECK(range("2:-9998") == Pair(2, 2));
  CHECK(range("-0:") == Pair(10'000, 10'000));
  for (const char* wrong : {"", "5", "5:2", "-2:-5", "1:2:3", "a:b", "1.5:2", " 1:2", "-:", ":--1",
                            "-9223372036854775809:"}) {
    CHECK_THROWS_AS(range(wrong), UsageError);
  }
  for (const char* beyond :
       {"0:10001", "10001:", "20000:30000", "-10001:", ":-10001", "-9223372036854775808:"}) {
    CHECK(contains(complaint([&] { range(beyond); }), "beyond the data (number of tokens: 10000)"));
    CHECK_THROWS_AS(range(beyond), Error);
  }
  CHECK(complaint([&] { range("-1:5"); }) ==
        "--range: -1:5 begins at 9999, but ends at 5 (number of tokens: 10000); give an end that "
        "does not precede the beginning");
}

TEST_CASE("lineage: history stays readable however often data is packed again") {
  Json history = Json{{"tool", "first"}};
  for (int generation = 0; generation < 100; ++generation) {
    if (generation % 2 == 0) {
      history = lineage(Json::object(), history);
    } else {
      history =
          lineage(Json::object(),
                  Json::array({Json{{"provenance", history}}, Json{{"provenance", history}}}));
    }
    CHECK(history.dump().size() < (256 << 10));
    CHECK(history.contains("input"));
  }
  CHECK_NOTHROW(parse_json(dump_json(history), "history"));
  const Json young = lineage(Json::object(), lineage(Json::object(), Json{{"tool", "first"}}));
  CHECK(young["input"]["input"]["tool"] == "first");
}

TEST_CASE("lineage: a deep history stays readable in a manifest") {
  Json deep = Json::object();
  for (int level = 0; level < 61; ++level) deep = Json{{"a", deep}};
  const Json made = lineage(Json::object(), Json::array({Json{{"provenance", deep}}}));
  CHECK_NOTHROW(parse_json(dump_json(Json{{"provenance", made}}), "manifest"));
}

TEST_CASE("provenance: file names that are not UTF-8 do no harm") {
  const Json made = lineage(Json{{"output",
                                  "a\xff"
                                  "b"}},
                            Json::object());
  CHECK(made["configuration"]["output"] == "a\uFFFDb");
  CHECK_NOTHROW(dump_json(made));
}

TEST_CASE("MultiReader::copy: progress counts the copied tokens") {
  const ScratchFolder scratch;
  std::vector<std::string> folders;
  for (const char* name : {"one", "two"}) {
    folders.push_back((scratch / name).string());
    PackOptions options;
    options.frame_tokens = 3;
    pack(folders.back(), random_documents(20, 50, 3), header_of(50), options);
  }
  MultiReader data(folders);
  ListSink sink;
  std::vector<std::int64_t> seen;
  data.copy({7, 33}, 1, sink, [&seen](std::int64_t done) { seen.push_back(done); });
  // Frames begin at multiples of 3 in each folder.
  CHECK(seen == std::vector<std::int64_t>{2, 5, 8, 11, 13, 16, 19, 22, 25, 26});
}

}  // namespace ql::shard
