// Target: documents.zst of ql-manifest(5). The input has eight bytes with the number of tokens,
// then by mode: 0 the file; 1 the file, whose checksum is repaired; 2 the file's content. With mode
// bit 2, eight more bytes are the manifest's number of documents; otherwise it agrees with the
// file.
#include "shard/document_starts.h"
#include "base/bytes.h"
#include "fuzz/fuzz.h"
#include "fuzz/repair.h"
#include "shard/zstd_frame.h"
#include "unit/shard_support.h"

namespace ql::fuzz {

namespace {

// Takes a number from 0 to 2^60, the range of numbers in manifests.
std::int64_t take_count(std::string_view& bytes) {
  std::string number(take(bytes, 8));
  number.resize(8, '\0');
  return static_cast<std::int64_t>(load_little_endian<std::uint64_t>(number.data()) &
                                   ((std::uint64_t{1} << 60) - 1));
}

std::string file_of(unsigned mode, std::string_view bytes) {
  switch (mode & 3) {
    case 1:
      return repaired_frame(std::string(bytes));
    case 2:
      return shard::FrameCompressor(1).compress(bytes);
    default:
      return std::string(bytes);
  }
}

void check(const std::vector<std::int64_t>& starts, const shard::Manifest& manifest) {
  require(static_cast<std::int64_t>(starts.size()) == manifest.documents, "all documents start");
  std::int64_t previous = -1;
  for (const std::int64_t start : starts) {
    require(start > previous && start < manifest.tokens, "starts ascend within the tokens");
    previous = start;
  }
  require(starts.empty() || starts.front() == 0, "the first document starts at 0");
}

}  // namespace

}  // namespace ql::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ql::fuzz;
  static const ql::test::ScratchFolder folder;
  Input input = input_of(data, size);
  ql::shard::Manifest manifest;
  manifest.tokens = take_count(input.bytes);
  const bool claims = (input.mode & 4) != 0;
  if (claims) manifest.documents = take_count(input.bytes);
  const std::string file = file_of(input.mode, input.bytes);
  if (!claims) manifest.documents = static_cast<std::int64_t>(stated_size(file) / 8);
  // Eight times this number must fit into 64 bits, which the manifest's reader checks.
  manifest.documents %= std::int64_t{1} << 59;
  manifest.document_starts = {"documents.zst", 8 * manifest.documents,
                              static_cast<std::int64_t>(file.size()), ql::content_hash(file)};
  ql::shard::test::overwrite(folder / "documents.zst", file);
  std::vector<std::int64_t> starts;
  const bool good = accepted([&] {
    starts = ql::shard::test::read_document_starts(
        {folder.path(), folder / "manifest.json", "data"}, manifest);
  });
  if (!good) return 0;
  ++taken_inputs;
  check(starts, manifest);
  return 0;
}
