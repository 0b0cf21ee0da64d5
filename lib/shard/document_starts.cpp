#include "shard/document_starts.h"

#include "base/error.h"
#include "base/hash.h"
#include "shard/damaged.h"
#include "shard/little_endian.h"
#include "shard/raw_file.h"
#include "shard/zstd_frame.h"

namespace ql::shard {

namespace {

// zstd reaches at most this ratio; a larger claim is not worth an allocation.
constexpr std::int64_t kLargestRatio = 200'000;

}  // namespace

std::string encode_document_starts(const std::vector<std::int64_t>& starts) {
  std::string bytes(starts.size() * 8, '\0');
  for (std::size_t i = 0; i < starts.size(); ++i)
    store_little_endian(&bytes[i * 8], static_cast<std::uint64_t>(starts[i]));
  return bytes;
}

std::vector<std::int64_t> read_document_starts(const PackedFolder& place,
                                               const Manifest& manifest) {
  const DocumentStartsEntry& entry = manifest.document_starts;
  const std::string name = (place.folder / entry.file).string();
  const RandomAccessFile file(path_inside(place, entry.file));
  if (file.size() != entry.bytes_compressed) {
    throw FormatError(name,
                      fmt::format("{} bytes, expected {}", file.size(), entry.bytes_compressed),
                      kDamagedFileCure);
  }
  std::string frame(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, frame.data(), frame.size());
  if (content_hash(frame) != entry.hash) throw FormatError(name, "hash mismatch", kDamagedFileCure);
  if (entry.bytes / kLargestRatio > file.size()) {
    throw FormatError(
        name,
        fmt::format("{} documents cannot come from {} bytes", manifest.documents, file.size()),
        kDamagedFileCure);
  }
  std::string bytes;
  const std::string problem =
      FrameDecompressor().decompress(frame, static_cast<std::size_t>(entry.bytes), bytes);
  if (!problem.empty()) throw FormatError(name, problem, kDamagedFileCure);

  std::vector<std::int64_t> starts(static_cast<std::size_t>(manifest.documents));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto start = load_little_endian<std::uint64_t>(&bytes[i * 8]);
    const bool ordered = i == 0 ? start == 0 : start > static_cast<std::uint64_t>(starts[i - 1]);
    if (!ordered || start >= static_cast<std::uint64_t>(manifest.tokens)) {
      throw FormatError(name,
                        fmt::format("document {}: start {} is out of order or beyond the {} "
                                    "tokens",
                                    i, start, manifest.tokens),
                        kDamagedFileCure);
    }
    starts[i] = static_cast<std::int64_t>(start);
  }
  return starts;
}

}  // namespace ql::shard
