// Tests ids without a header, as text and as raw bytes.

#include <doctest/doctest.h>

#include "base/log.h"
#include "interop/plain_ids.h"
#include "shard/shard.h"
#include "unit/shard_support.h"

namespace ql::interop {

using namespace shard;
using namespace shard::test;
using ql::test::ScratchFolder;

namespace {

VocabularyInfo vocabulary_of(std::int64_t size) { return header_of(size).vocabulary; }

Documents parse(const std::string& text, std::int64_t vocabulary = 1000) {
  const ScratchFolder scratch;
  overwrite(scratch / "ids", text);
  InputFile input((scratch / "ids").string());
  ListSink sink;
  read_text_ids(input, vocabulary_of(vocabulary), sink, [](std::int64_t) {});
  return sink.documents;
}

Documents parse_raw(const std::string& bytes, int bytes_per_id, std::int64_t vocabulary = 1000) {
  const ScratchFolder scratch;
  overwrite(scratch / "ids", bytes);
  InputFile input((scratch / "ids").string());
  ListSink sink;
  read_raw_ids(input, bytes_per_id, vocabulary_of(vocabulary), sink, [](std::int64_t) {});
  return sink.documents;
}

ByteSink into(std::string& text) {
  return [&text](const void* data, std::size_t size) {
    text.append(static_cast<const char*>(data), size);
  };
}

std::string as_text(const Documents& documents) {
  std::string text;
  const auto writer = make_token_writer("ids", into(text), {});
  send(documents, *writer);
  writer->finish(std::nullopt);
  return text;
}

}  // namespace

TEST_CASE("read_text_ids: one line per document") {
  CHECK(parse("1 2 3\n4\n") == Documents{{1, 2, 3}, {4}});
  CHECK(parse("1 2 3\n4") == Documents{{1, 2, 3}, {4}});
  CHECK(parse("\n\n 1\t2  3 \r\n\n\r\n999\n\n") == Documents{{1, 2, 3}, {999}});
  CHECK(parse("007 0\n") == Documents{{7, 0}});
  CHECK(parse("").empty());
  CHECK(parse("\n \n").empty());
  CHECK(parse("4294967295\n", std::int64_t{1} << 32) == Documents{{4294967295U}});
}

TEST_CASE("read_text_ids: a text that is not an id is named with its line") {
  const auto verdict = [](const std::string& text) { return complaint([&] { parse(text); }); };
  CHECK(contains(verdict("1\n2 x7\n"), "line 2: 'x' is not a digit"));
  CHECK(contains(verdict("-1\n"), "line 1: '-' is not a digit"));
  CHECK(contains(verdict("1.5\n"), "'.' is not a digit"));
  CHECK(contains(verdict(std::string("1\0002\n", 4)), "byte 0x00 is not a digit"));
  CHECK(
      contains(verdict("\n\n1000\n"), "line 3: id 1000 is outside the vocabulary of 1000 entries"));
  CHECK(contains(verdict("99999999999999999999999999\n"), "outside the vocabulary"));
}

TEST_CASE("make_token_writer: read_text_ids() reads the text back, across buffers") {
  const Documents documents = random_documents(200000, 100000, 13, 1000);
  const std::string text = as_text(documents);
  CHECK(parse(text, 100000) == documents);
  CHECK(as_text({}).empty());
  CHECK(as_text({{1, 2}, {3}}) == "1 2\n3\n");
}

TEST_CASE("make_token_writer: read_raw_ids() reads the ids back, across buffers") {
  const Documents documents = random_documents(200001, 1000, 14, 1000);
  for (const int bytes_per_id : {2, 4}) {
    std::string bytes;
    const auto writer = make_token_writer(bytes_per_id == 2 ? "u16" : "u32", into(bytes),
                                          {vocabulary_of(1000), "", {}});
    send(documents, *writer);
    writer->finish(std::nullopt);
    CHECK(bytes.size() == 200001U * static_cast<std::size_t>(bytes_per_id));
    const Documents read = parse_raw(bytes, bytes_per_id);
    REQUIRE(read.size() == 1);
    CHECK(all_ids(read) == all_ids(documents));
  }
  std::string bytes;
  CHECK_THROWS_AS(make_token_writer("text", into(bytes), {vocabulary_of(1000), "", {}}),
                  UsageError);
}

TEST_CASE("read_raw_ids: cut ids, ids outside the vocabulary and too wide ids are refused") {
  CHECK(parse_raw("", 2).empty());
  CHECK(contains(complaint([] { parse_raw(std::string("\1\0\2", 3), 2); }),
                 "ends within an id of 2 bytes, after 1 token"));
  CHECK(contains(complaint([] { parse_raw(std::string("\1\0\2\0\3\0", 6), 4); }),
                 "ends within an id of 4 bytes, after 1 token"));
  CHECK(contains(complaint([] { parse_raw("\1\2\3", 2); }), "ends within"));
  CHECK(contains(complaint([] { parse_raw(std::string("\1\0\xE8\x03", 4), 2); }),
                 "token 1: id 1000 is outside the vocabulary of 1000 entries"));
  CHECK(contains(
      complaint([] {
        make_token_writer("u16", [](const void*, std::size_t) {}, {vocabulary_of(65537), "", {}});
      }),
      "do not fit into u16"));
}

// Ids of 4 bytes as u16 reads them: a lower half, then the next one of `uppers`.
std::vector<TokenId> with_uppers(std::size_t count, const std::vector<TokenId>& uppers) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<TokenId>(17 + 31 * i % 900));
    ids.push_back(uppers[i % uppers.size()]);
  }
  return ids;
}

TEST_CASE("read_raw_ids: warns when ids look like wider ones") {
  struct Case {
    int bytes_per_id;
    std::vector<TokenId> ids;
    std::string said;  // "": no warning
  };
  const Case cases[] = {
      {2, {5, 0, 7, 0}, "first 4 u16 ids is 0, as if each id had 4 bytes; if so, give --input u32"},
      {2, {0, 0, 7, 0, 0, 0}, "as if each id had 4 bytes"},
      {2, {5, 0, 0, 0, 7, 0, 0, 0}, "as if each id had 8 bytes; if so, pack them as text"},
      {4, {5, 0, 7, 0, 9}, "first 5 u32 ids is 0, as if each id had 8 bytes"},
      {2, {5, 0, 7, 1}, ""},
      {2, {5, 0}, ""},           // too few ids
      {2, {0, 0, 0, 0, 0}, ""},  // one token, many times
      {2, {0, 5, 0, 7}, ""},
      {4, {5, 1, 7, 0}, ""},
      {2, with_uppers(300, {0, 1}), "u16 ids is at most 3, as if each id had 4 bytes"},
      {2, with_uppers(300, {0, 1, 0, 0, 1, 0, 2, 0, 0, 900}), ""},
  };
  for (const Case& row : cases) {
    std::string bytes, warned;
    append_ids(bytes, row.ids.data(), row.ids.size(), row.bytes_per_id);
    set_log_sink([&](LogLevel, const std::string& line) { warned += line; });
    CHECK(all_ids(parse_raw(bytes, row.bytes_per_id)) ==
          std::vector<std::int64_t>(row.ids.begin(), row.ids.end()));
    set_log_sink(nullptr);
    CAPTURE(row.said);
    CHECK(warned.empty() == row.said.empty());
    CHECK(contains(warned, row.said));
  }
}

TEST_CASE("read_raw_ids: the advice about an id outside the vocabulary") {
  const auto verdict = [](const std::string& bytes, int bytes_per_id, std::int64_t vocabulary) {
    return complaint([&] { parse_raw(bytes, bytes_per_id, vocabulary); });
  };
  // The bytes are big-endian 1, 2, 999; then u16 ids read as u32; then neither.
  CHECK(contains(verdict(std::string("\0\1\0\2\3\xE7", 6), 2, 1000), "dd conv=swab"));
  CHECK(contains(verdict(std::string("\1\0\2\0\xE7\3\3\0", 8), 4, 1000), "give --input u16"));
  CHECK(contains(verdict(std::string("\xE8\3\2\0\0\xFF\3\0", 8), 4, 1000),
                 "give the vocabulary of these ids, or its size (--vocab-size), or --input with"));
  CHECK(contains(verdict("", 2, 65537), "--input u16: u16 ids cannot name all 65537 entries"));
  CHECK(verdict("", 2, 65536).empty());
  CHECK(verdict("", 4, 65537).empty());
}

}  // namespace ql::interop
