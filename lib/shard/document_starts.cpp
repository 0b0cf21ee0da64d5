#include "shard/document_starts_internal.h"

#include <algorithm>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/signals.h"
#include "shard/damaged_file_internal.h"

namespace ql::shard {

namespace {

constexpr const char* kFileName = "documents.zst";
constexpr std::int64_t kStartsAtOnce = 8192;

}  // namespace

std::string encode_document_starts(const std::vector<std::int64_t>& starts) {
  std::string bytes(starts.size() * 8, '\0');
  for (std::size_t i = 0; i < starts.size(); ++i) {
    store_little_endian(&bytes[i * 8], static_cast<std::uint64_t>(starts[i]));
  }
  return bytes;
}

DocumentStartsReader::DocumentStartsReader(const PackedFolder& place, const Manifest& manifest)
    : name_((place.folder / manifest.document_starts.file).string()),
      manifest_(manifest),
      file_(path_inside(place, manifest.document_starts.file)) {
  const DocumentStartsEntry& entry = manifest.document_starts;
  if (file_.size() != entry.bytes_compressed) {
    throw FormatError(name_,
                      fmt::format("{} bytes, expected {}", file_.size(), entry.bytes_compressed),
                      kDamagedFileCure);
  }
  // Before anything is handed on: the frame's own checksum comes only at its end.
  if (file_.hash() != entry.hash) throw FormatError(name_, "hash mismatch", kDamagedFileCure);
  frame_.emplace(file_, name_, entry.bytes);
  if (manifest.documents == 0) frame_->read(nullptr, 0);
}

bool DocumentStartsReader::read(std::vector<std::int64_t>& starts) {
  const std::int64_t count = std::min(kStartsAtOnce, manifest_.documents - documents_);
  starts.resize(static_cast<std::size_t>(count));
  if (count == 0) return false;
  bytes_.resize(starts.size() * 8);
  frame_->read(bytes_.data(), bytes_.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto start = load_little_endian<std::uint64_t>(&bytes_[i * 8]);
    const bool ordered = documents_ == 0 ? start == 0 : start > static_cast<std::uint64_t>(last_);
    if (!ordered || start >= static_cast<std::uint64_t>(manifest_.tokens)) {
      throw FormatError(name_,
                        fmt::format("document {}: start {} is out of order or beyond the {} "
                                    "tokens",
                                    documents_, start, manifest_.tokens),
                        kDamagedFileCure);
    }
    starts[i] = last_ = static_cast<std::int64_t>(start);
    ++documents_;
  }
  return true;
}

void for_each_piece_of_starts(const PackedFolder& place, const Manifest& manifest,
                              std::int64_t before,
                              const std::function<void(std::string_view bytes)>& use) {
  DocumentStartsReader reader(place, manifest);
  for (std::vector<std::int64_t> starts; reader.read(starts);) {
    check_for_stop();
    for (std::int64_t& start : starts) start += before;
    use(encode_document_starts(starts));
  }
}

DocumentStartsAhead::DocumentStartsAhead(const PackedFolder& place, const Manifest& manifest,
                                         std::int64_t position)
    : reader_(place, manifest) {
  while (reader_.read(starts_)) {
    check_for_stop();
    if (starts_.back() >= position) break;
  }
  at_ = static_cast<std::size_t>(std::lower_bound(starts_.begin(), starts_.end(), position) -
                                 starts_.begin());
}

void DocumentStartsAhead::pass() {
  if (++at_ < starts_.size()) return;
  reader_.read(starts_);
  at_ = 0;
}

std::vector<std::int64_t> read_document_starts(const PackedFolder& place,
                                               const Manifest& manifest) {
  DocumentStartsReader reader(place, manifest);
  std::vector<std::int64_t> all, starts;
  // A count that lies takes no more memory than the file's size allows.
  all.reserve(static_cast<std::size_t>(
      std::min(manifest.documents, manifest.document_starts.bytes_compressed)));
  while (reader.read(starts)) all.insert(all.end(), starts.begin(), starts.end());
  return all;
}

DocumentStartsWriter::DocumentStartsWriter(const std::filesystem::path& folder,
                                           const std::string& shown_folder, std::int64_t documents,
                                           int level)
    : file_(folder / kFileName, (std::filesystem::path(shown_folder) / kFileName).string()),
      frame_(level, 8 * documents) {
  entry_.file = kFileName;
  entry_.bytes = 8 * documents;
}

void DocumentStartsWriter::write(std::string_view bytes) { put(frame_.write(bytes)); }

DocumentStartsEntry DocumentStartsWriter::finish() {
  put(frame_.finish());
  file_.close();
  entry_.hash = hasher_.digest();
  return entry_;
}

void DocumentStartsWriter::put(std::string_view frame) {
  file_.write(frame.data(), frame.size());
  hasher_.update(frame.data(), frame.size());
  entry_.bytes_compressed += static_cast<std::int64_t>(frame.size());
}

}  // namespace ql::shard
