// Tests streams whose checksums are right and whose content is wrong.
#include <doctest/doctest.h>

#include "base/bytes.h"
#include "shard/shard.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;

namespace {

constexpr const char* kVocabulary = R"("vocabulary":{"size":10,"hash":"","type":""})";

// Puts a stream together by hand.
class Forger {
 public:
  explicit Forger(const std::string& json, std::uint32_t version = 1) : bytes("QLTOKENS") {
    append_little_endian(bytes, version);
    append_little_endian(bytes, static_cast<std::uint32_t>(json.size()));
    bytes += json;
    append_little_endian(bytes, xxh64(bytes.data(), bytes.size()));
  }
  Forger() : Forger(std::string(R"({"bytes_per_id":2,)") + kVocabulary + R"(,"provenance":{}})") {}

  Forger& block(const std::string& type, const std::string& payload) {
    std::string part = type;
    append_little_endian(part, static_cast<std::uint32_t>(payload.size()));
    part += payload;
    append_little_endian(part, xxh64(part.data(), part.size(), number_++));
    bytes += part;
    return *this;
  }
  Forger& data(std::uint32_t tokens, const std::vector<std::uint32_t>& starts,
               const std::vector<TokenId>& ids) {
    std::string payload;
    append_little_endian(payload, tokens);
    append_little_endian(payload, static_cast<std::uint32_t>(starts.size()));
    for (const std::uint32_t start : starts) append_little_endian(payload, start);
    append_ids(payload, ids.data(), ids.size(), 2);
    append_ids(ids_, ids.data(), ids.size(), 2);
    return block("DATA", payload);
  }
  Forger& end(std::int64_t tokens, std::int64_t documents) {
    return block("ENDS", fmt::format(R"({{"tokens":{},"documents":{},"ids_hash":"{}"}})", tokens,
                                     documents, content_hash(ids_)));
  }
  std::string bytes;

 private:
  std::uint64_t number_ = 0;
  std::string ids_;
};

std::string verdict(const std::string& bytes) {
  const ScratchFolder scratch;
  return complaint([&] { read_stream(scratch, bytes); });
}

std::string header_verdict(const std::string& json) { return verdict(Forger(json).bytes); }

}  // namespace

TEST_CASE("TokenStreamReader: the forger can make a good stream") {
  CHECK(verdict(Forger().end(0, 0).bytes).empty());
  CHECK(verdict(Forger().data(3, {0, 2}, {1, 2, 3}).end(3, 2).bytes).empty());
  CHECK(verdict(Forger().block("VOCB", "text").data(1, {0}, {1}).end(1, 1).bytes).empty());
}

TEST_CASE("TokenStreamReader: wrong data blocks are found") {
  CHECK(contains(verdict(Forger().data(0, {}, {}).end(0, 0).bytes), "0 tokens"));
  CHECK(contains(verdict(Forger().data(2, {0}, {1, 2, 3}).bytes), "a block of "));
  CHECK(contains(verdict(Forger().data(4, {0}, {1, 2, 3}).bytes), "a block of "));
  CHECK(contains(verdict(Forger().data(0xFFFFFFFF, {0}, {1}).bytes), "a block of "));
  CHECK(contains(verdict(Forger().data(1, {0, 1}, {1}).bytes), "a block of "));
  CHECK(contains(verdict(Forger().data(3, {0, 3}, {1, 2, 3}).bytes), "document start 3"));
  CHECK(contains(verdict(Forger().data(3, {0, 2, 1}, {1, 2, 3}).bytes), "document start 1"));
  CHECK(contains(verdict(Forger().data(3, {0, 0}, {1, 2, 3}).bytes), "document start 0"));
  CHECK(contains(verdict(Forger().data(3, {1}, {1, 2, 3}).bytes), "first token"));
  CHECK(contains(verdict(Forger().data(3, {}, {1, 2, 3}).bytes), "first token"));
  CHECK(contains(verdict(Forger().data(2, {0}, {9, 10}).bytes),
                 "token 1: id 10 is outside the vocabulary of 10 entries"));
  CHECK(contains(verdict(Forger().block("DATA", "").bytes), "block 0"));
  CHECK(contains(verdict(Forger().block("DATA", std::string(7, '\0')).bytes), "block 0"));
}

TEST_CASE("TokenStreamReader: wrong blocks of other types are found") {
  CHECK(contains(verdict(Forger().data(1, {0}, {1}).end(2, 1).bytes), "states 2 tokens"));
  CHECK(contains(verdict(Forger().data(1, {0}, {1}).end(1, 2).bytes), "in 2 documents"));
  CHECK(contains(verdict(Forger().end(-1, 0).bytes), "tokens"));
  CHECK(contains(verdict(Forger().block("WHAT", "").end(0, 0).bytes), "unknown type"));
  CHECK(contains(verdict(Forger().data(1, {0}, {1}).block("VOCB", "x").end(1, 1).bytes),
                 "unknown type"));
  CHECK(contains(verdict(Forger().block("ENDS", "{}").bytes), "tokens"));
  CHECK(contains(verdict(Forger().block("ENDS", "").bytes), "block 0"));
  CHECK(contains(
      verdict(Forger().block("ENDS", R"({"tokens":0,"documents":0,"ids_hash":"00"})").bytes),
      "hash of all ids"));
  CHECK(contains(verdict(Forger().end(0, 0).end(0, 0).bytes), "follows the end block"));
}

TEST_CASE("TokenStreamReader: lost, repeated and exchanged blocks are found") {
  const std::string head = Forger().bytes;
  const std::string first = Forger().data(1, {0}, {1}).bytes.substr(head.size());
  const std::string both = Forger().data(1, {0}, {1}).data(1, {0}, {2}).bytes.substr(head.size());
  const std::string second = both.substr(first.size());
  const std::string end = Forger()
                              .data(1, {0}, {1})
                              .data(1, {0}, {2})
                              .end(2, 2)
                              .bytes.substr(head.size() + both.size());
  CHECK(verdict(head + first + second + end).empty());
  for (const auto& middle : std::vector<std::vector<std::string>>{
           {second}, {first}, {second, first}, {first, first, second}}) {
    std::string stream = head;
    for (const std::string& part : middle) stream += part;
    CHECK(contains(verdict(stream + end), "checksum mismatch"));
  }
}

TEST_CASE("TokenStreamReader: no size is trusted before it is checked") {
  std::string huge_header = "QLTOKENS";
  append_little_endian(huge_header, std::uint32_t{1});
  append_little_endian(huge_header, std::uint32_t{0xFFFFFFFF});
  CHECK(contains(verdict(huge_header), "exceeds the limit"));
  std::string huge_block = Forger().bytes + "DATA";
  append_little_endian(huge_block, std::uint32_t{0xFFFFFFFF});
  CHECK(contains(verdict(huge_block), "exceeds the limit"));
}

TEST_CASE("TokenStreamReader: headers are read strictly") {
  const std::string v = kVocabulary;
  CHECK(contains(verdict(Forger("{}", 2).bytes), "version 2"));
  CHECK(contains(header_verdict(R"({"bytes_per_id":4,)" + v + R"(,"provenance":{}})"),
                 "4 bytes per id, expected 2"));
  CHECK(contains(header_verdict(R"({"bytes_per_id":2,"bytes_per_id":2,)" + v + "}"), "twice"));
  CHECK(contains(header_verdict(R"({"bytes_per_id":2.5,)" + v + R"(,"provenance":{}})"),
                 "whole number"));
  CHECK(contains(header_verdict(R"({"bytes_per_id":2,)" + v + "}"), "provenance"));
  CHECK(contains(header_verdict("[]"), "object"));
  CHECK(contains(header_verdict(""), "header"));
  for (const char* size : {"0", "-1", "4294967297", "1.9", "\"10\"", "1e3"}) {
    CAPTURE(size);
    CHECK(contains(header_verdict(fmt::format(R"({{"bytes_per_id":2,"vocabulary":{{"size":{},)"
                                              R"("hash":"","type":""}},"provenance":{{}}}})",
                                              size)),
                   "vocabulary: size"));
  }
  CHECK(contains(header_verdict(R"({"bytes_per_id":2,"vocabulary":{"size":10,"hash":"","type":"",)"
                                R"("eos":10},"provenance":{}})"),
                 "vocabulary: eos"));
}

}  // namespace ql::shard
