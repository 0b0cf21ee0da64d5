#include <doctest/doctest.h>

#include "foreign/plain_ids.h"
#include "unit/shard_support.h"

namespace ql::foreign {

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

TEST_CASE("text ids: one line per document") {
  CHECK(parse("1 2 3\n4\n") == Documents{{1, 2, 3}, {4}});
  CHECK(parse("1 2 3\n4") == Documents{{1, 2, 3}, {4}});
  CHECK(parse("\n\n 1\t2  3 \r\n\n\r\n999\n\n") == Documents{{1, 2, 3}, {999}});
  CHECK(parse("007 0\n") == Documents{{7, 0}});
  CHECK(parse("").empty());
  CHECK(parse("\n \n").empty());
  CHECK(parse("4294967295\n", std::int64_t{1} << 32) == Documents{{4294967295U}});
}

TEST_CASE("text ids: what is no id is named with its line") {
  const auto verdict = [](const std::string& text) { return complaint([&] { parse(text); }); };
  CHECK(contains(verdict("1\n2 x7\n"), "line 2: 'x' is no digit"));
  CHECK(contains(verdict("-1\n"), "line 1: '-' is no digit"));
  CHECK(contains(verdict("1.5\n"), "'.' is no digit"));
  CHECK(contains(verdict(std::string("1\0002\n", 4)), "byte 0x00 is no digit"));
  CHECK(
      contains(verdict("\n\n1000\n"), "line 3: id 1000 is outside the vocabulary of 1000 entries"));
  CHECK(contains(verdict("99999999999999999999999999\n"), "outside the vocabulary"));
}

TEST_CASE("text ids: the writer's text is read back, across buffers") {
  const Documents documents = random_documents(200000, 100000, 13, 1000);
  const std::string text = as_text(documents);
  CHECK(parse(text, 100000) == documents);
  CHECK(as_text({}).empty());
  CHECK(as_text({{1, 2}, {3}}) == "1 2\n3\n");
}

TEST_CASE("raw ids are read back, across buffers") {
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
}

TEST_CASE("raw ids: cut ids, foreign ids and ids that are too wide are refused") {
  CHECK(parse_raw("", 2).empty());
  CHECK(contains(complaint([] { parse_raw(std::string("\1\0\2", 3), 2); }),
                 "ends within an id of 2 bytes"));
  CHECK(contains(complaint([] { parse_raw(std::string("\1\0\2\0\3\0", 6), 4); }),
                 "ends within an id of 4 bytes"));
  CHECK(contains(complaint([] { parse_raw("\1\2\3", 2); }), "ends within"));
  CHECK(contains(complaint([] { parse_raw(std::string("\1\0\xE8\x03", 4), 2); }),
                 "token 1: id 1000 is outside the vocabulary of 1000 entries"));
  CHECK(contains(
      complaint([] {
        make_token_writer("u16", [](const void*, std::size_t) {}, {vocabulary_of(65537), "", {}});
      }),
      "do not fit into u16"));
}

}  // namespace ql::foreign
