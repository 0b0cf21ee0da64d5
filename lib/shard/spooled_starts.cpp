#include "shard/spooled_starts_internal.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/signals.h"

namespace ql::shard {

namespace {

constexpr const char* kFileName = "documents.spool";

}  // namespace

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

void SpooledStarts::take(const std::function<void(std::string_view)>& sink) {
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
    if (error) throw SystemError((folder_.path() / kFileName).string(), "remove", error.value());
  }
  sink(piece_);
  piece_.clear();
}

}  // namespace ql::shard
