// Reads and writes documents.zst piece by piece, and collects document starts in a temporary file.

#include "shard/document_starts.h"

#include <system_error>

#include "base/process.h"

namespace ql::shard {

std::int64_t document_offset(const std::vector<std::int64_t>& starts, std::int64_t position) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), position);
  return next == starts.begin() ? position : position - *(next - 1);
}

std::int64_t DocumentOffsets::offset(std::int64_t position) {
  for (; !ahead_.empty() && ahead_.front() <= position; ahead_.pop_front()) {
    start_ = ahead_.front();
  }
  return position - start_;
}

std::optional<std::int64_t> DocumentOffsets::next_start() const {
  return ahead_.empty() ? std::nullopt : std::optional(ahead_.front());
}

constexpr std::int64_t kStartsAtOnce = 8192;
constexpr std::size_t kBytesAtOnce = 8 * kStartsAtOnce;

DocumentStartsReader::DocumentStartsReader(const PackedFolder& place, const Manifest& manifest,
                                           std::int64_t position)
    : name_((place.folder / manifest.document_starts.file).string()),
      manifest_(manifest),
      file_(path_inside(place, manifest.document_starts.file)) {
  const FileEntry& entry = manifest.document_starts;
  check_size(name_, file_.size(), entry.bytes_compressed);
  // The file's hash is checked before any start is used, because the frame's own checksum comes
  // only at the end of the frame.
  if (file_.hash() != entry.hash) fail_as_damaged(name_, "hash mismatch");
  frame_.emplace(file_, name_, entry.bytes);
  if (manifest.documents == 0) frame_->read(nullptr, 0);
  do {
    read_piece();
  } while (!starts_.empty() && starts_.back() < position);
  at_ = static_cast<std::size_t>(std::lower_bound(starts_.begin(), starts_.end(), position) -
                                 starts_.begin());
}

void DocumentStartsReader::read_piece() {
  check_for_stop();
  at_ = 0;
  starts_.resize(
      static_cast<std::size_t>(std::min(kStartsAtOnce, manifest_.documents - documents_)));
  if (starts_.empty()) return;
  bytes_.resize(starts_.size() * 8);
  frame_->read(bytes_.data(), bytes_.size());
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    const auto start = load_little_endian<std::uint64_t>(&bytes_[i * 8]);
    const bool ordered = documents_ == 0 ? start == 0 : start > static_cast<std::uint64_t>(last_);
    if (!ordered || start >= static_cast<std::uint64_t>(manifest_.tokens)) {
      fail_as_damaged(
          name_, documents_ == 0
                     ? fmt::format("document 0 begins at position {}, expected 0", start)
                     : fmt::format(
                           "document {} begins at position {}, expected one after {} and before {}",
                           documents_, start, last_, manifest_.tokens));
    }
    starts_[i] = last_ = static_cast<std::int64_t>(start);
    ++documents_;
  }
}

void for_each_piece_of_starts(const PackedFolder& place, const Manifest& manifest,
                              std::int64_t before, const StartsSink& sink) {
  std::string bytes;
  for (DocumentStartsReader starts(place, manifest); !starts.ended(); starts.pass()) {
    append_little_endian(bytes, static_cast<std::uint64_t>(starts.next() + before));
    if (bytes.size() < kBytesAtOnce) continue;
    sink(bytes);
    bytes.clear();
  }
  sink(bytes);
}

FileEntry write_document_starts(std::unique_ptr<NewFile> file, std::int64_t documents, int level,
                                const std::function<void(const StartsSink& sink)>& send_all) {
  HashedFile hashed(std::move(file));
  FrameStreamWriter frame(level, 8 * documents);
  send_all([&](std::string_view bytes) { hashed.write(frame.compress(bytes, false)); });
  hashed.write(frame.compress({}, true));
  return hashed.finish(kDocumentStartsFile, 8 * documents);
}

constexpr const char* kFileName = "documents.spool";

void SpooledStarts::add(std::int64_t start) {
  if (piece_.size() == kPieceBytes) write_piece();
  append_little_endian(piece_, static_cast<std::uint64_t>(start));
  ++count_;
}

void SpooledStarts::write_piece() {
  if (!file_) file_ = folder_.create(kFileName);
  file_->write(piece_.data(), piece_.size());
  piece_.clear();
}

void SpooledStarts::take(const StartsSink& sink) {
  if (file_) {
    file_->close();
    const fs::path path = folder_.temporary() / kFileName;
    const RandomAccessFile spooled(path);
    std::string bytes;
    for (std::int64_t offset = 0; offset < spooled.size();) {
      check_for_stop();
      bytes.resize(
          std::min<std::size_t>(kPieceBytes, static_cast<std::size_t>(spooled.size() - offset)));
      spooled.read(offset, bytes.data(), bytes.size());
      sink(bytes);
      offset += static_cast<std::int64_t>(bytes.size());
    }
    std::error_code error;
    fs::remove(path, error);
    if (error) throw SystemError(path.string(), "remove", error.value());
  }
  sink(piece_);
  piece_.clear();
}

}  // namespace ql::shard
