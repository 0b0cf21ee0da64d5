// Compares documents.zst, which is read and written in pieces, with plain lists.
#include <doctest/doctest.h>

#include "base/bytes.h"
#include "shard/document_starts.h"
#include "shard/zstd_frame.h"
#include "unit/shard_support.h"

namespace ql::shard {

using namespace test;
using ql::test::ScratchFolder;
using ql::test::slurp;

namespace {

std::vector<std::int64_t> random_starts(std::size_t count, unsigned seed,
                                        std::uint64_t longest = 1000) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> starts;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < count; ++i) {
    starts.push_back(position);
    position += 1 + static_cast<std::int64_t>(random() % longest);
  }
  return starts;
}

std::unique_ptr<NewFile> new_file(const fs::path& folder) {
  return std::make_unique<NewFile>(folder / kDocumentStartsFile, "data/documents.zst");
}

// Makes a folder with only documents.zst, and the matching part of a manifest.
struct StartsFile {
  explicit StartsFile(const fs::path& the_folder) : place{the_folder, "", "data"} {}

  void write(const std::vector<std::int64_t>& starts, std::size_t piece) {
    fs::remove(place.folder / "documents.zst");
    const auto documents = static_cast<std::int64_t>(starts.size());
    const auto send_all = [&](const StartsSink& sink) {
      for (std::size_t begin = 0; begin < starts.size(); begin += piece) {
        const std::size_t end = std::min(starts.size(), begin + piece);
        sink(encode_document_starts({starts.begin() + static_cast<std::ptrdiff_t>(begin),
                                     starts.begin() + static_cast<std::ptrdiff_t>(end)}));
      }
    };
    manifest.document_starts =
        write_document_starts(new_file(place.folder), documents, 1, send_all);
    manifest.documents = documents;
    manifest.tokens = starts.empty() ? 0 : starts.back() + 1;
  }

  // Writes other content into the file, with a manifest that agrees in size and hash.
  void put(const std::string& file, std::int64_t documents, std::int64_t tokens) {
    overwrite(place.folder / "documents.zst", file);
    manifest.document_starts = {"documents.zst", 8 * documents,
                                static_cast<std::int64_t>(file.size()), content_hash(file)};
    manifest.documents = documents;
    manifest.tokens = tokens;
  }

  std::vector<std::int64_t> read() const { return read_document_starts(place, manifest); }
  std::string verdict() const {
    return complaint([&] { read(); });
  }

  PackedFolder place;
  Manifest manifest;
};

std::string frame_of(const std::vector<std::int64_t>& starts) {
  return FrameCompressor(3).compress(encode_document_starts(starts));
}

// Returns the size of the largest file in the temporary folder of an unfinished pack.
std::uintmax_t largest_unfinished(const ScratchFolder& scratch) {
  std::uintmax_t largest = 0;
  for (const auto& entry : fs::recursive_directory_iterator(scratch.path())) {
    if (entry.is_regular_file()) largest = std::max(largest, entry.file_size());
  }
  return largest;
}

}  // namespace

TEST_CASE("SpooledStarts: starts take memory for one piece, and come back in their order") {
  constexpr std::size_t kInPiece = SpooledStarts::kPieceBytes / 8;
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, kInPiece, kInPiece + 1, 3 * kInPiece, 10 * kInPiece + 7}) {
    CAPTURE(count);
    const ScratchFolder scratch;
    const NewFolder folder(scratch / "data");
    SpooledStarts spooled(folder);
    const std::vector<std::int64_t> starts = random_starts(count, 34);
    std::size_t most = 0;
    for (const std::int64_t start : starts) {
      spooled.add(start);
      most = std::max(most, spooled.bytes_in_memory());
    }
    CHECK(most <= SpooledStarts::kPieceBytes);
    CHECK(spooled.count() == static_cast<std::int64_t>(count));
    CHECK(fs::is_empty(folder.temporary()) == (count <= kInPiece));
    std::string bytes;
    spooled.take([&](std::string_view piece) {
      CHECK(piece.size() <= SpooledStarts::kPieceBytes);
      bytes += piece;
    });
    CHECK(bytes == encode_document_starts(starts));
    CHECK(fs::is_empty(folder.temporary()));
  }
}

TEST_CASE("PackWriter: document starts go to the disk during packing, and the result is the same") {
  constexpr std::size_t kDocuments = 100'000;
  for (const int level : {0, 1, 19}) {
    CAPTURE(level);
    const ScratchFolder scratch;
    const std::vector<std::int64_t> starts = random_starts(kDocuments, 35, 8);
    PackOptions options;
    options.level = level;
    PackWriter writer(scratch / "data", header_of(3), options);
    const std::vector<TokenId> ids(8, 1);
    for (std::size_t i = 0; i < kDocuments; ++i) {
      const std::int64_t next = i + 1 < kDocuments ? starts[i + 1] : starts[i] + 1;
      writer.begin_document();
      writer.write(ids.data(), static_cast<std::size_t>(next - starts[i]));
    }
    // Shards of one repeated id are small.
    CHECK(largest_unfinished(scratch) >
          8 * kDocuments - 2 * SpooledStarts::kPieceBytes - NewFile::kBufferBytes);
    writer.finish(std::nullopt);
    // This writes the frame of all starts at once.
    fs::create_directory(scratch / "alone");
    const FileEntry expected = write_document_starts(
        new_file(scratch / "alone"), kDocuments, level,
        [&](const StartsSink& sink) { sink(encode_document_starts(starts)); });
    CHECK(slurp(scratch / "data/documents.zst") == slurp(scratch / "alone/documents.zst"));
    CHECK(writer.manifest().document_starts.hash == expected.hash);
    CHECK(writer.manifest().documents == static_cast<std::int64_t>(kDocuments));
    const std::filesystem::directory_iterator files(scratch / "data");
    CHECK(std::distance(begin(files), end(files)) == 3);  // one shard, documents.zst, the manifest
  }
}

TEST_CASE("DocumentStartsReader: document starts are read back, whatever the pieces") {
  const ScratchFolder scratch;
  StartsFile file(scratch.path());
  for (const std::size_t count : {0U, 1U, 8191U, 8192U, 8193U, 100000U}) {
    CAPTURE(count);
    const std::vector<std::int64_t> starts = random_starts(count, 31);
    for (const std::size_t piece : {std::size_t{7000}, std::size_t{1} << 20}) {
      file.write(starts, piece);
      CHECK(file.read() == starts);
      // Any zstd decompressor could read this.
      std::string content(8 * count, 'x');
      const std::string frame = slurp(scratch / "documents.zst");
      CHECK(FrameDecompressor().decompress(frame, 8 * count, content.data()).empty());
      CHECK(content == encode_document_starts(starts));
      CHECK(file.manifest.document_starts.hash == content_hash(frame));
    }
    // This frame was compressed at once.
    if (count == 0) continue;
    file.put(frame_of(starts), static_cast<std::int64_t>(count), starts.back() + 1);
    CHECK(file.read() == starts);
  }
}

TEST_CASE("DocumentStartsReader: walking along the tokens meets every start") {
  const ScratchFolder scratch;
  StartsFile file(scratch.path());
  for (const std::size_t count : {0U, 1U, 8192U, 20000U}) {
    const std::vector<std::int64_t> starts = random_starts(count, 32);
    file.write(starts, 5000);
    const std::int64_t end = file.manifest.tokens;
    for (const std::int64_t from :
         {std::int64_t{0}, std::int64_t{1}, end / 3, end / 2, end - 1, end}) {
      if (from < 0) continue;
      CAPTURE(from);
      auto expected = std::lower_bound(starts.begin(), starts.end(), from);
      DocumentStartsReader ahead(file.place, file.manifest, from);
      for (; expected != starts.end() && ahead.next() == *expected; ++expected) ahead.pass();
      CHECK(expected == starts.end());
      CHECK(ahead.ended());
      CHECK(ahead.next() == DocumentStartsReader::kNone);
    }
  }
}

TEST_CASE("DocumentStartsReader: starts that contradict the manifest are refused") {
  const ScratchFolder scratch;
  StartsFile file(scratch.path());
  const std::vector<std::int64_t> starts = random_starts(20000, 33);
  const std::string frame = frame_of(starts);
  const std::int64_t tokens = starts.back() + 1;
  file.put(frame, 20000, tokens);
  CHECK(file.verdict().empty());
  const auto verdict = [&](const std::string& bytes, std::int64_t documents, std::int64_t of) {
    file.put(bytes, documents, of);
    return file.verdict();
  };
  CHECK(contains(verdict(frame, 20000, tokens - 1), "and before"));
  CHECK(contains(verdict(frame, 19999, tokens), "expected a zstd frame for 159992 bytes"));
  CHECK(contains(verdict(frame + frame, 20000, tokens), "data follows the zstd frame"));
  CHECK(contains(verdict(frame + "x", 20000, tokens), "data follows the zstd frame"));
  CHECK(contains(verdict(frame.substr(0, frame.size() / 2), 20000, tokens), "ends too early"));
  CHECK(contains(verdict(frame.substr(0, frame.size() - 1), 20000, tokens), "ends too early"));
  CHECK(contains(verdict("", 0, 0), "ends too early"));
  CHECK(contains(verdict("no frame at all", 1, 1),
                 "expected a zstd frame for 8 bytes, found another or none"));
  CHECK(contains(verdict(frame_of({0, 5, 5}), 3, 9),
                 "document 2 begins at position 5, expected one after 5"));
  CHECK(contains(verdict(frame_of({1, 5}), 2, 9), "document 0 begins at position 1, expected 0"));
  CHECK(contains(verdict(frame_of({0, -1}), 2, 9), "document 1 begins at position "));
  std::string damaged = frame;
  damaged[frame.size() / 2] = static_cast<char>(damaged[frame.size() / 2] ^ 4);
  CHECK_FALSE(verdict(damaged, 20000, tokens).empty());
  // The error comes before any start is passed on.
  file.put(frame, 20000, tokens);
  file.manifest.document_starts.hash = "0";
  CHECK(contains(complaint([&] { DocumentStartsReader reader(file.place, file.manifest); }),
                 "hash mismatch"));
}

TEST_CASE("DocumentStartsReader: a decompression bomb is refused at its second start") {
  const ScratchFolder scratch;
  StartsFile file(scratch.path());
  // 32 MB of zeros are compressed to one or two kilobytes.
  const std::string zeros(std::size_t{32} << 20, '\0');
  const std::string frame = FrameCompressor(19).compress(zeros);
  CHECK(frame.size() < 16384);
  const auto documents = static_cast<std::int64_t>(zeros.size() / 8);
  file.put(frame, documents, documents);
  CHECK(contains(file.verdict(), "document 1 begins at position 0"));
}

TEST_CASE("write_document_starts: the number of starts must be the announced one") {
  for (const std::vector<std::int64_t>& starts : {std::vector<std::int64_t>{0}, {0, 1, 2}}) {
    const ScratchFolder scratch;
    CHECK(contains(complaint([&] {
                     write_document_starts(
                         new_file(scratch.path()), 2, 1,
                         [&](const StartsSink& sink) { sink(encode_document_starts(starts)); });
                   }),
                   "cannot compress"));
  }
}

}  // namespace ql::shard
