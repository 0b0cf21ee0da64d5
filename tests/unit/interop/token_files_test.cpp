// Token files of llm.c, nanoGPT and Megatron are made here number by number, and read back.
#include <doctest/doctest.h>

#include "base/log.h"
#include "interop/formats.h"
#include "interop/token_files.h"
#include "unit/damage.h"
#include "unit/shard_support.h"

namespace ql::interop {

using namespace shard;
using namespace shard::test;
using ql::test::cuts;
using ql::test::Damaged;
using ql::test::Damages;
using ql::test::flipped_bits;
using ql::test::ScratchFolder;
using ql::test::slurp;

namespace {

// Returns the lowest `size` bytes of a number, the lowest first.
std::string bytes_of(std::int64_t number, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

std::string list_of(const std::vector<std::int64_t>& numbers, int size) {
  std::string bytes;
  for (const std::int64_t number : numbers) bytes += bytes_of(number, size);
  return bytes;
}

std::string llmc_file(const std::vector<std::int64_t>& ids, bool wide) {
  std::string bytes = bytes_of(wide ? 20240801 : 20240520, 4) + bytes_of(wide ? 7 : 1, 4) +
                      bytes_of(static_cast<std::int64_t>(ids.size()), 4);
  bytes.resize(1024, '\0');
  return bytes + list_of(ids, wide ? 4 : 2);
}

struct Index {
  int version = 1, type = 8, width = 2;
  std::vector<std::int64_t> lengths, places, documents;

  // Makes the index of sequences that follow each other without gaps.
  static Index of(const std::vector<std::int64_t>& lengths,
                  const std::vector<std::int64_t>& documents, int type = 8, int width = 2) {
    Index index;
    index.type = type;
    index.width = width;
    index.lengths = lengths;
    index.documents = documents;
    std::int64_t place = 0;
    for (const std::int64_t length : lengths) {
      index.places.push_back(place);
      place += length * width;
    }
    return index;
  }

  std::string text() const {
    return std::string("MMIDIDX\0\0", 9) + bytes_of(version, 8) + bytes_of(type, 1) +
           bytes_of(static_cast<std::int64_t>(lengths.size()), 8) +
           bytes_of(static_cast<std::int64_t>(documents.size()), 8) + list_of(lengths, 4) +
           list_of(places, 8) + list_of(documents, 8);
  }
};

ImportRules rules_of(Format format, std::int64_t vocabulary,
                     std::optional<TokenId> eos = std::nullopt, bool eos_first = false) {
  ImportRules rules;
  rules.format = format;
  rules.vocabulary.size = vocabulary;
  rules.vocabulary.eos = eos;
  rules.eos_first = eos_first;
  return rules;
}

Documents import(const std::vector<std::string>& files, const ImportRules& rules) {
  ListSink sink;
  const std::int64_t tokens = count_tokens(files, rules);
  std::int64_t last = 0;
  import_tokens(files, rules, sink, [&](std::int64_t done) { last = done; });
  CHECK(last == tokens);
  CHECK(static_cast<std::int64_t>(all_ids(sink.documents).size()) == tokens);
  return sink.documents;
}

// Writes a file and imports it.
Documents import_bytes(const std::string& bytes, const ImportRules& rules) {
  const ScratchFolder scratch;
  overwrite(scratch / "file.bin", bytes);
  return import({(scratch / "file.bin").string()}, rules);
}

Documents import_megatron(const std::string& index, const std::string& data,
                          std::int64_t vocabulary = 1000) {
  const ScratchFolder scratch;
  overwrite(scratch / "file.idx", index);
  overwrite(scratch / "file.bin", data);
  return import({(scratch / "file").string()}, rules_of(Format::kMegatron, vocabulary));
}

std::string exported(const fs::path& data, const fs::path& target, Format format,
                     std::int64_t file_tokens = 100) {
  MultiReader joined({data.string()});
  ExportOptions options;
  options.format = format;
  options.file_tokens = file_tokens;
  options.threads = 2;
  return complaint([&] { export_tokens(joined, target, options, [](std::int64_t) {}); });
}

}  // namespace

TEST_CASE("import_tokens: llm.c: both widths, documents after or at each eos") {
  for (const bool wide : {false, true}) {
    const std::string bytes = llmc_file({9, 1, 2, 9, 3, 9, 9}, wide);
    CHECK(bytes.size() == 1024U + 7 * (wide ? 4 : 2));
    const auto rules = [](std::optional<TokenId> eos, bool first = false) {
      return rules_of(Format::kLlmc, 10, eos, first);
    };
    CHECK(import_bytes(bytes, rules(std::nullopt)) == Documents{{9, 1, 2, 9, 3, 9, 9}});
    CHECK(import_bytes(bytes, rules(9)) == Documents{{9}, {1, 2, 9}, {3, 9}, {9}});
    CHECK(import_bytes(bytes, rules(9, true)) == Documents{{9, 1, 2}, {9, 3}, {9}, {9}});
    CHECK(import_bytes(bytes, rules(8)) == Documents{{9, 1, 2, 9, 3, 9, 9}});
    CHECK(import_bytes(llmc_file({}, wide), rules(9)).empty());
  }
  const std::string large = llmc_file({4294967295, 70000}, true);
  CHECK(import_bytes(large, rules_of(Format::kLlmc, std::int64_t{1} << 32)) ==
        Documents{{4294967295U, 70000}});
}

TEST_CASE("import_tokens: several files are read in order, and documents continue in the next") {
  const ScratchFolder scratch;
  overwrite(scratch / "a", llmc_file({1, 2, 9, 3}, false));
  overwrite(scratch / "b", llmc_file({4, 9, 5}, true));
  CHECK(import({(scratch / "a").string(), (scratch / "b").string()},
               rules_of(Format::kLlmc, 10, 9)) == Documents{{1, 2, 9}, {3, 4, 9}, {5}});
}

TEST_CASE("import_tokens: nanoGPT: raw ids") {
  const auto rules = rules_of(Format::kNanogpt, 65536, 0);
  CHECK(import_bytes(list_of({7, 65535, 0, 1}, 2), rules) == Documents{{7, 65535, 0}, {1}});
  CHECK(import_bytes("", rules).empty());
  CHECK(contains(complaint([&] { import_bytes("abc", rules); }), "3 bytes, not a whole number"));
  // The file is longer than the buffer of a read.
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 200001; ++i) ids.push_back(1 + i % 60000);
  CHECK(all_ids(import_bytes(list_of(ids, 2), rules)) == ids);
}

TEST_CASE("import_tokens: u32: nanoGPT's file with wider ids") {
  const auto rules = rules_of(Format::kU32, 100000, 9);
  CHECK(import_bytes(list_of({7, 99999, 9, 1}, 4), rules) == Documents{{7, 99999, 9}, {1}});
  CHECK(import_bytes(list_of({7, 9, 1}, 4), rules_of(Format::kU32, 10, 9, true)) ==
        Documents{{7}, {9, 1}});
  CHECK(import_bytes("", rules).empty());
  CHECK(contains(complaint([&] { import_bytes("abcdef", rules); }),
                 "6 bytes, not a whole number of u32 ids"));
  const ScratchFolder scratch;
  for (const std::int64_t vocabulary : {1000, 100000}) {
    const std::string data = (scratch / std::to_string(vocabulary)).string();
    const Documents documents = random_documents(5000, vocabulary, 31);
    pack(data, documents, header_of(vocabulary));
    REQUIRE(exported(data, data + ".u32", Format::kU32).empty());
    const std::string file = data + ".u32/" + std::to_string(vocabulary) + ".u32.bin";
    CHECK(slurp(file) == list_of(all_ids(documents), 4));
    CHECK(all_ids(import({file}, rules_of(Format::kU32, vocabulary))) == all_ids(documents));
  }
}

TEST_CASE("import_tokens: u16 ids and a vocabulary that exceeds them") {
  const std::vector<std::int64_t> ids{1, 2, 3};
  const auto verdict = [&](Format format, std::int64_t vocabulary) {
    return complaint([&] {
      import_bytes(format == Format::kLlmc ? llmc_file(ids, false) : list_of(ids, 2),
                   rules_of(format, vocabulary));
    });
  };
  CHECK(verdict(Format::kNanogpt, 65536).empty());
  CHECK(contains(verdict(Format::kNanogpt, 65537),
                 "--format nanogpt: u16 ids cannot name all 65537 entries of the vocabulary"));
  CHECK(verdict(Format::kLlmc, 65536).empty());
  CHECK(contains(verdict(Format::kLlmc, 65537), "file.bin: the header states u16 ids"));
  CHECK(import_bytes(llmc_file(ids, true), rules_of(Format::kLlmc, 65537)) == Documents{{1, 2, 3}});
  // The vocabulary may have grown since Megatron's index was written.
  std::string warned;
  set_log_sink([&](LogLevel, const std::string& line) { warned += line; });
  for (const auto& [type, width] : std::vector<std::pair<int, int>>{{8, 2}, {4, 4}}) {
    warned.clear();
    CHECK(import_megatron(Index::of({3}, {0, 1}, type, width).text(), list_of(ids, width), 65537) ==
          Documents{{1, 2, 3}});
    CHECK(contains(warned, "cannot name all 65537 entries") == (width == 2));
  }
  set_log_sink(nullptr);
}

TEST_CASE("import_tokens: Megatron: every type of ids, documents of several sequences") {
  const std::vector<std::int64_t> ids{1, 2, 3, 100, 5, 6};
  const Documents documents{{1, 2, 3}, {100, 5}, {6}};
  for (const auto& [type, width] :
       std::vector<std::pair<int, int>>{{1, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}}) {
    CAPTURE(type);
    const std::string index = Index::of({1, 2, 2, 0, 1}, {0, 2, 4, 5}, type, width).text();
    CHECK(import_megatron(index, list_of(ids, width)) == documents);
  }
  // Documents without tokens do not exist.
  CHECK(import_megatron(Index::of({1, 0, 5}, {0, 0, 1, 2, 3, 3}).text(), list_of(ids, 2)) ==
        Documents{{1}, {2, 3, 100, 5, 6}});
  CHECK(import_megatron(Index::of({}, {0}).text(), "").empty());
  // Any name of the two files is accepted, and each pair begins a document. Another name of a pair
  // is not a second pair, but the same name is.
  const ScratchFolder scratch;
  overwrite(scratch / "a.idx", Index::of({2}, {0, 1}).text());
  overwrite(scratch / "a.bin", list_of({1, 2}, 2));
  const std::string a = (scratch / "a").string();
  CHECK(import({a, a + ".idx", a}, rules_of(Format::kMegatron, 10)) == Documents{{1, 2}, {1, 2}});
  CHECK(import({a + ".bin", a + ".idx"}, rules_of(Format::kMegatron, 10)) == Documents{{1, 2}});
  const std::string other_spelling = (scratch / "." / "a.idx").string();
  CHECK(import({other_spelling, a + ".bin"}, rules_of(Format::kMegatron, 10)) == Documents{{1, 2}});
  // Ids of one byte may look like text.
  const std::vector<std::int64_t> visible(58, 'x');
  CHECK(import_megatron(Index::of({58}, {0, 1}, 1, 1).text(), list_of(visible, 1), 256) ==
        Documents{std::vector<TokenId>(58, 'x')});
}

TEST_CASE("import_tokens: ids outside the vocabulary are named with their place") {
  const auto verdict = [](const std::string& bytes, Format format) {
    return complaint([&] { import_bytes(bytes, rules_of(format, 10)); });
  };
  CHECK(contains(verdict(llmc_file({1, 10}, false), Format::kLlmc),
                 "file.bin: token 1: id 10 is outside the vocabulary of 10 entries"));
  CHECK(contains(verdict(list_of({1, 2, 65535}, 2), Format::kNanogpt),
                 "token 2: id 65535 is outside"));
  // Signed types have negative numbers.
  CHECK(contains(complaint([] {
                   import_megatron(Index::of({3}, {0, 1}, 4, 4).text(), list_of({1, 2, -1}, 4));
                 }),
                 "token 2: id -1 is outside"));
}

TEST_CASE("import_tokens: llm.c: headers that do not agree with the file are refused") {
  const std::string good = llmc_file({1, 2, 3}, false);
  const auto verdict = [](const std::string& bytes) {
    return complaint([&] { import_bytes(bytes, rules_of(Format::kLlmc, 10)); });
  };
  const auto with = [&](std::size_t place, std::int64_t number) {
    std::string bytes = good;
    bytes.replace(place, 4, bytes_of(number, 4));
    return verdict(bytes);
  };
  CHECK(verdict(good).empty());
  CHECK(contains(verdict(""), ": 0 of 1024 bytes"));
  CHECK(contains(verdict(good.substr(0, 1023)), ": 1023 of 1024 bytes"));
  CHECK(contains(verdict(good + "xx"), "1032 bytes, expected 1030 for the 3 tokens"));
  CHECK(contains(with(0, 20240521),
                 "begins with the number 20240521, expected 20240520 or 20240801"));
  CHECK(contains(with(0, 20240801), "version 1, expected 7"));
  CHECK(contains(with(4, 2), "version 2, expected 1"));
  CHECK(contains(with(8, 4), "expected 1032 for the 4 tokens"));
  CHECK(contains(with(8, -1), "4294967295 tokens"));
  // Every bit of the header and every length: the result is good data or an error.
  for (const auto& [what, bytes] : flipped_bits(good, 12 * 8)) {
    CAPTURE(what);
    CHECK_FALSE(verdict(bytes).empty());
  }
  for (std::size_t size = 0; size < good.size(); size += size < 1020 ? 17 : 1) {
    CHECK_FALSE(verdict(good.substr(0, size)).empty());
  }
}

TEST_CASE("import_tokens: Megatron: an index that contradicts itself or the tokens is refused") {
  const std::string data = list_of({1, 2, 3, 4, 5}, 2);
  const Index good = Index::of({2, 3}, {0, 1, 2});
  const auto verdict = [&](const Index& index) {
    return complaint([&] { import_megatron(index.text(), data); });
  };
  const auto after = [&](const std::function<void(Index&)>& edit) {
    Index index = good;
    edit(index);
    return verdict(index);
  };
  CHECK(verdict(good).empty());
  CHECK(contains(after([](Index& index) { index.version = 2; }), "version 2, expected 1"));
  CHECK(contains(after([](Index& index) { index.type = 6; }), "type code of the ids is 6"));
  CHECK(contains(after([](Index& index) { index.type = 0; }), "type code of the ids is 0"));
  CHECK(contains(after([](Index& index) { index.lengths[1] = 4; }),
                 "has 4 tokens, but the .bin ends at byte 10"));
  CHECK(contains(after([](Index& index) { index.lengths[1] = 2; }),
                 "the sequences take only 8 of 10 bytes of the .bin"));
  CHECK(contains(after([](Index& index) { index.lengths[0] = -1; }),
                 "sequence 0 begins at byte 0 and has -1 tokens"));
  CHECK(contains(after([](Index& index) { index.places[1] = 6; }), "begins at byte 6"));
  CHECK(
      contains(after([](Index& index) { index.places[0] = -2; }), "sequence 0 begins at byte -2"));
  CHECK(contains(after([](Index& index) { index.documents = {0, 2, 1}; }), "ends at sequence 1"));
  CHECK(contains(after([](Index& index) {
                   index.documents = {0, 1};
                 }),
                 "the documents have only 1 of 2 listed sequences"));
  CHECK(contains(after([](Index& index) { index.documents = {1, 2}; }), "begins at sequence 1"));
  CHECK(contains(after([](Index& index) { index.documents = {0, 3}; }), "ends at sequence 3"));
  CHECK(contains(after([](Index& index) { index.documents = {}; }), "no document boundaries"));
  CHECK(contains(after([](Index& index) {
                   index.documents = {0, -1};
                 }),
                 "document 0 ends at sequence -1"));
  // A size computed from such a count would overflow 64 bits.
  for (const std::size_t place : {18U, 26U}) {
    std::string text = good.text();
    text.replace(place, 8, bytes_of(INT64_MAX, 8));
    CHECK(contains(complaint([&] { import_megatron(text, data); }),
                   "contradicts the counts in its header"));
  }
  const std::string text = good.text();
  for (const Damaged& cut : cuts(text)) {
    CHECK_FALSE(complaint([&] { import_megatron(cut.bytes, data); }).empty());
  }
  for (const Damaged& cut : cuts(data)) {
    CHECK_FALSE(complaint([&] { import_megatron(text, cut.bytes); }).empty());
  }
  // One flip makes another good index: the first sequence then belongs to the second document.
  int passed = 0;
  for (const Damaged& flipped : flipped_bits(text)) {
    Documents read;
    const std::string said = complaint([&] { read = import_megatron(flipped.bytes, data); });
    if (!said.empty()) continue;
    ++passed;
    CHECK(all_ids(read) == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  }
  CHECK(passed == 1);
}

TEST_CASE(
    "import_tokens: no damage gives ids outside the vocabulary, or other counts than announced") {
  struct Files {
    Format format;
    std::string tokens, index;
  };
  const std::vector<std::int64_t> ids{9, 1, 2, 9, 3, 9, 9};
  const std::vector<Files> all{
      {Format::kLlmc, llmc_file(ids, false), ""},
      {Format::kLlmc, llmc_file(ids, true), ""},
      {Format::kNanogpt, list_of(ids, 2), ""},
      {Format::kMegatron, list_of(ids, 2), Index::of({1, 3, 1, 2}, {0, 1, 3, 4}).text()},
      {Format::kMegatron, list_of(ids, 8), Index::of({4, 3}, {0, 1, 2}, 5, 8).text()}};
  const ScratchFolder scratch;
  int refused = 0;
  // These files have no checksum: accepted data may have other ids, but no other error.
  const auto check = [&](const Files& files) {
    overwrite(scratch / "file.bin", files.tokens);
    overwrite(scratch / "file.idx", files.index);
    Documents read;
    const std::string said = complaint(
        [&] { read = import({(scratch / "file.bin").string()}, rules_of(files.format, 10, 9)); });
    for (const std::int64_t id : all_ids(read)) CHECK(id < 10);
    if (said.empty()) return;
    CHECK_MESSAGE(contains(said, (scratch / "file").string()), said);
    ++refused;
  };
  for (const Files& good : all) {
    for (const auto& [what, bytes] : Damages(good.tokens, 300)) {
      CAPTURE(what);
      check({good.format, bytes, good.index});
    }
    if (good.index.empty()) continue;
    for (const auto& [what, bytes] : Damages(good.index, 300)) {
      CAPTURE(what);
      check({good.format, good.tokens, bytes});
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("export_tokens: the files have the format's bytes, and can be imported") {
  const ScratchFolder scratch;
  const Documents documents{{1, 2, 9}, {3}, {4, 5, 6, 9}};
  pack(scratch / "data", documents, header_of(10));
  REQUIRE(exported(scratch / "data", scratch / "n", Format::kNanogpt).empty());
  CHECK(slurp(scratch / "n" / "n.bin") == list_of({1, 2, 9, 3, 4, 5, 6, 9}, 2));

  REQUIRE(exported(scratch / "data", scratch / "l", Format::kLlmc, 3).empty());
  CHECK(slurp(scratch / "l" / "l_000000.bin") == llmc_file({1, 2, 9}, false));
  CHECK(slurp(scratch / "l" / "l_000001.bin") == llmc_file({3, 4, 5}, false));
  CHECK(slurp(scratch / "l" / "l_000002.bin") == llmc_file({6, 9}, false));
  CHECK(std::distance(fs::directory_iterator(scratch / "l"), fs::directory_iterator()) == 3);

  REQUIRE(exported(scratch / "data", scratch / "m", Format::kMegatron).empty());
  CHECK(slurp(scratch / "m" / "m.bin") == list_of({1, 2, 9, 3, 4, 5, 6, 9}, 2));
  CHECK(slurp(scratch / "m" / "m.idx") == Index::of({3, 1, 4}, {0, 1, 2, 3}).text());

  const std::string l = (scratch / "l" / "l_00000").string();
  CHECK(import({l + "0.bin", l + "1.bin", l + "2.bin"}, rules_of(Format::kLlmc, 10, 9)) ==
        Documents{{1, 2, 9}, {3, 4, 5, 6, 9}});
  CHECK(import({(scratch / "m" / "m").string()}, rules_of(Format::kMegatron, 10)) == documents);
}

TEST_CASE("export_tokens: random data survives Megatron's files, in both widths") {
  for (const std::int64_t vocabulary : {1000, 100000}) {
    const ScratchFolder scratch;
    const Documents documents = random_documents(300000, vocabulary, 41, 60);
    pack(scratch / "data", documents, header_of(vocabulary));
    REQUIRE(exported(scratch / "data", scratch / "m", Format::kMegatron).empty());
    CHECK(import({(scratch / "m" / "m").string()}, rules_of(Format::kMegatron, vocabulary)) ==
          documents);
    REQUIRE(exported(scratch / "data", scratch / "l", Format::kLlmc, 300000).empty());
    CHECK(all_ids(import({(scratch / "l" / "l_000000.bin").string()},
                         rules_of(Format::kLlmc, vocabulary))) == all_ids(documents));
  }
}

TEST_CASE(
    "export_tokens: Megatron: documents that are longer than a sequence can be become several") {
  const ScratchFolder scratch;
  const std::int64_t most = INT32_MAX;
  const std::vector<std::int64_t> documents{most, 1, most + 1, 5'000'000'000};
  for (const int width : {2, 4}) {
    const fs::path path = scratch / std::to_string(width);
    NewFile file(path, "index");
    write_megatron_index(
        [&](const std::function<void(std::int64_t)>& use) {
          for (const std::int64_t tokens : documents) use(tokens);
        },
        width, file);
    file.close();
    const Index index = Index::of({most, 1, most, 1, most, most, 5'000'000'000 - 2 * most},
                                  {0, 1, 2, 4, 7}, width == 2 ? 8 : 4, width);
    CHECK(slurp(path) == index.text());
    MegatronIndex reader(path, width * (2 * most + 2 + 5'000'000'000));
    for (const std::int64_t expected : documents) {
      std::int64_t tokens = 0;
      CHECK(reader.next_document(tokens));
      CHECK(tokens == expected);
    }
    std::int64_t tokens = 0;
    CHECK_FALSE(reader.next_document(tokens));
  }
}

TEST_CASE("export_tokens: data without tokens is exported, too") {
  const ScratchFolder scratch;
  pack(scratch / "data", {}, header_of(100000));
  REQUIRE(exported(scratch / "data", scratch / "l", Format::kLlmc).empty());
  CHECK(slurp(scratch / "l" / "l_000000.bin") == llmc_file({}, true));
  REQUIRE(exported(scratch / "data", scratch / "m", Format::kMegatron).empty());
  CHECK(slurp(scratch / "m" / "m.idx") == Index::of({}, {0}, 4, 4).text());
}

TEST_CASE("export_tokens: replaces nothing, and refuses ids that do not fit") {
  const ScratchFolder scratch;
  pack(scratch / "data", {{1}}, header_of(65537));
  CHECK(contains(
      exported(scratch / "data", scratch / "n", Format::kNanogpt),
      "the vocabulary has 65537 entries, but the format nanogpt has ids for at most 65536"));
  pack(scratch / "huge", {{1}}, header_of((std::int64_t{1} << 31) + 1));
  CHECK(contains(exported(scratch / "huge", scratch / "n", Format::kMegatron),
                 "ids for at most 2147483648"));
  CHECK(contains(exported(scratch / "data", scratch / "data", Format::kLlmc),
                 "exists and is not empty"));
  overwrite(scratch / "file", "");
  CHECK(contains(exported(scratch / "data", scratch / "file", Format::kLlmc),
                 "exists and is not a folder"));
  for (const std::int64_t file_tokens : {std::int64_t{0}, std::int64_t{1} << 31}) {
    shard::MultiReader data({(scratch / "data").string()});
    ExportOptions options;
    options.file_tokens = file_tokens;
    CHECK_THROWS_AS(export_tokens(data, scratch / "n", options, [](std::int64_t) {}), ConfigError);
  }
  // Damage that is found during the export leaves no files.
  overwrite(scratch / "data" / "shard-00000.zst", "");
  CHECK_FALSE(exported(scratch / "data", scratch / "n", Format::kLlmc).empty());
  CHECK(scratch.entries() == 3);
}

}  // namespace ql::interop
