// Tests token streams: round trips, blocks, and every kind of damage.

#include <doctest/doctest.h>

#include <numeric>

#include "unit/damage.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::cuts;
using ql::test::Damaged;
using ql::test::Damages;
using ql::test::flipped_bits;
using ql::test::ScratchFolder;

namespace {

void check_round_trip(const Documents& documents, std::int64_t vocabulary,
                      const std::string& vocabulary_text) {
  const ScratchFolder scratch;
  const StreamHeader header = header_of(vocabulary, vocabulary_text);
  const StreamContent read = read_stream(scratch, stream_of(documents, header));
  CHECK(read.documents == documents);
  CHECK(read.header.vocabulary == header.vocabulary);
  CHECK(read.header.vocabulary_text == vocabulary_text);
  CHECK(read.header.provenance == header.provenance);
  REQUIRE(read.counts.has_value());
  CHECK(text_counts_to_json(*read.counts) == text_counts_to_json(kSomeCounts));
}

}  // namespace

TEST_CASE("TokenStreamReader: gives back what make_stream_writer() writes") {
  check_round_trip({}, 10, "");
  check_round_trip({{7}}, 8, "");
  check_round_trip({{0}, {1}, {2}}, 3, "the vocabulary");
  check_round_trip(random_documents(1000, 65536, 1), 65536, std::string(1000, 'v'));
  check_round_trip(random_documents(1000, 65537, 2), 65537, std::string("\0binary\n", 8));
  check_round_trip({{4294967295U, 0}}, std::int64_t{1} << 32, "");
}

TEST_CASE("make_stream_writer: blocks end where they must, whatever the documents") {
  // 65,536 tokens fill a block.
  for (const std::size_t tokens : {65535U, 65536U, 65537U, 131072U, 200000U}) {
    check_round_trip(random_documents(tokens, 50, 3, 1), 50, "");
    check_round_trip(random_documents(tokens, 50, 4, 100000), 50, "");
    check_round_trip({std::vector<TokenId>(tokens, 5)}, 70000, "");
  }
}

TEST_CASE("make_stream_writer: a vocabulary larger than a block is sent in parts") {
  std::string text(5 << 20, '\0');
  std::iota(text.begin(), text.end(), '\0');
  check_round_trip({{1, 2}}, 10, text);
  check_round_trip({{1, 2}}, 10, text.substr(0, 1 << 20));
}

TEST_CASE("VocabularyInfo::bytes_per_id: depends on the vocabulary only") {
  const Documents documents{{1, 2, 3, 4}};
  const auto size = [&](std::int64_t vocabulary) {
    return stream_of(documents, header_of(vocabulary)).size();
  };
  CHECK(size(65537) == size(65536) + 8);
}

TEST_CASE(
    "make_stream_writer: begin_document() twice makes one document, and a stream begins with one") {
  std::string bytes;
  const auto writer = make_stream_writer(
      [&](const void* data, std::size_t size) {
        bytes.append(static_cast<const char*>(data), size);
      },
      header_of(10));
  const TokenId ids[] = {1, 2, 3};
  writer->write(ids, 1);
  writer->begin_document();
  writer->begin_document();
  writer->write(ids, 0);
  writer->write(ids + 1, 2);
  writer->begin_document();
  writer->finish(std::nullopt);
  const ScratchFolder scratch;
  const StreamContent read = read_stream(scratch, bytes);
  CHECK(read.documents == Documents{{1}, {2, 3}});
  CHECK_FALSE(read.counts.has_value());
}

TEST_CASE("make_stream_writer: flush() sends tokens before a block is full") {
  std::size_t written = 0;
  const auto writer =
      make_stream_writer([&](const void*, std::size_t size) { written += size; }, header_of(10));
  const std::size_t header_size = written;
  const TokenId id = 1;
  writer->write(&id, 1);
  CHECK(written == header_size);
  writer->flush();
  CHECK(written > header_size);
  const std::size_t after = written;
  writer->flush();
  CHECK(written == after);
}

TEST_CASE("make_stream_writer: a provenance that is too long for the header is refused") {
  StreamHeader header = header_of(10);
  header.provenance["command"] = std::string(2 << 20, 'x');
  CHECK(contains(complaint([&] {
                   stream_of({{1, 2}}, header);
                 }),
                 "bytes, but readers take at most 1048576"));
}

TEST_CASE("make_stream_writer: misuse is a programming error") {
  const auto writer = make_stream_writer([](const void*, std::size_t) {}, header_of(10));
  const TokenId outside = 10;
  CHECK_THROWS_AS(writer->write(&outside, 1), std::logic_error);
  writer->finish(std::nullopt);
  const TokenId id = 1;
  CHECK_THROWS_AS(writer->write(&id, 1), std::logic_error);
  CHECK_THROWS_AS(writer->finish(std::nullopt), std::logic_error);
  CHECK_THROWS_AS(make_stream_writer([](const void*, std::size_t) {}, header_of(0)),
                  std::logic_error);
}

TEST_CASE("TokenStreamReader: every flipped bit of a stream is found") {
  const ScratchFolder scratch;
  const std::string good = stream_of({{1, 2, 3}, {4}}, header_of(20, "vocabulary"));
  for (const auto& [what, bytes] : flipped_bits(good)) {
    CAPTURE(what);
    CHECK_THROWS_AS(read_stream(scratch, bytes), FormatError);
  }
}

TEST_CASE("TokenStreamReader: a stream that is cut anywhere is not accepted as finished") {
  const ScratchFolder scratch;
  const std::string good = stream_of({{1, 2, 3}, {4}}, header_of(20, "vocabulary"));
  for (const Damaged& cut : cuts(good)) {
    CAPTURE(cut.what);
    const std::string text = complaint([&] { read_stream(scratch, cut.bytes); });
    const bool reported = cut.bytes.empty() ? contains(text, "the input is empty")
                                            : contains(text, "its producer did not finish");
    CHECK_MESSAGE(reported, text);
  }
  CHECK(
      complaint([&] { read_stream(scratch, good + "x"); }) ==
      (scratch / "stream").string() +
          ": data follows the end block; give one token stream, or pack each stream alone and join "
          "the folders with `qlbin merge`");
}

TEST_CASE("TokenStreamReader: no damage to a stream goes unnoticed") {
  const ScratchFolder scratch;
  for (const std::int64_t vocabulary : {300, 70000}) {
    const Documents documents = random_documents(100, vocabulary, 3);
    const std::string good = stream_of(documents, header_of(vocabulary, "vocabulary"));
    for (const auto& [what, bytes] : Damages(good, 500)) {
      CAPTURE(what);
      CHECK_THROWS_AS(read_stream(scratch, bytes), FormatError);
    }
  }
}

TEST_CASE("TokenStreamReader: an input that is not a token stream is refused with advice") {
  const ScratchFolder scratch;
  const std::string text = complaint([&] { read_stream(scratch, "Call me Ishmael."); });
  CHECK(contains(text, "not a token stream"));
  CHECK(contains(text, "qltok encode"));
  CHECK(contains(text, "qlbin pack --input ids"));
}

}  // namespace ql::shard
