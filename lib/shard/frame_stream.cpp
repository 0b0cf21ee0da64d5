#include "shard/frame_stream_internal.h"

#include <zstd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "shard/damaged_file_internal.h"

namespace ql::shard {

namespace {

// Bytes that are read from the file at once; frames of the window's size would not gain by more.
constexpr std::int64_t kPieceBytes = std::int64_t{128} << 10;

}  // namespace

FrameStreamWriter::FrameStreamWriter(int level, std::int64_t content_size)
    : context_(make_compression_context(level)), expected_(content_size) {
  check_compression(
      ZSTD_CCtx_setPledgedSrcSize(context_.get(), static_cast<unsigned long long>(content_size)));
}

std::string_view FrameStreamWriter::write(std::string_view content) {
  expected_ -= static_cast<std::int64_t>(content.size());
  if (expected_ < 0) throw std::logic_error("more content than the frame announced");
  return compress(content, false);
}

std::string_view FrameStreamWriter::finish() {
  if (expected_ != 0) throw std::logic_error("less content than the frame announced");
  return compress({}, true);
}

std::string_view FrameStreamWriter::compress(std::string_view content, bool ends) {
  ready_.clear();
  ZSTD_inBuffer in = {content.data(), content.size(), 0};
  for (std::size_t left = 1; left > 0 || in.pos < in.size;) {
    const std::size_t before = ready_.size();
    ready_.resize(before + ZSTD_CStreamOutSize());
    ZSTD_outBuffer out = {&ready_[before], ready_.size() - before, 0};
    left = check_compression(
        ZSTD_compressStream2(context_.get(), &out, &in, ends ? ZSTD_e_end : ZSTD_e_continue));
    ready_.resize(before + out.pos);
    // Only the end has to come out at once; until then zstd may keep what it has.
    if (!ends) left = 0;
  }
  return ready_;
}

FrameStreamReader::FrameStreamReader(const RandomAccessFile& file, std::string name,
                                     std::int64_t content_size)
    : context_(make_decompression_context()),
      file_(file),
      name_(std::move(name)),
      content_left_(content_size) {
  load_piece();
  if (ZSTD_getFrameContentSize(piece_.data(), piece_.size()) !=
      static_cast<unsigned long long>(content_size)) {
    fail(fmt::format("the zstd frame does not state its content's size of {} bytes", content_size));
  }
}

void FrameStreamReader::read(void* content, std::size_t size) {
  if (static_cast<std::int64_t>(size) > content_left_) {
    throw std::logic_error("more of a frame asked for than its content");
  }
  if (decompress(content, size) != size) fail("the zstd frame has less content than it states");
  content_left_ -= static_cast<std::int64_t>(size);
  if (content_left_ > 0) return;
  if (used_ != piece_.size() || offset_ != file_.size()) fail("data follows the zstd frame");
}

void FrameStreamReader::fail(const std::string& what) const {
  throw FormatError(name_, what, kDamagedFileCure);
}

void FrameStreamReader::load_piece() {
  const auto size = std::min(file_.size() - offset_, kPieceBytes);
  if (size == 0) fail("the zstd frame does not end");
  piece_.resize(static_cast<std::size_t>(size));
  file_.read(offset_, piece_.data(), piece_.size());
  offset_ += size;
  used_ = 0;
}

std::size_t FrameStreamReader::decompress(void* content, std::size_t size) {
  ZSTD_outBuffer out = {content, size, 0};
  // The frame's end, with its checksum, is read with the last content.
  const bool last = content_left_ == static_cast<std::int64_t>(size);
  while (!ended_ && (out.pos < out.size || last)) {
    if (used_ == piece_.size()) load_piece();
    ZSTD_inBuffer in = {piece_.data(), piece_.size(), used_};
    const std::size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
    if (ZSTD_isError(result) != 0) fail(fmt::format("damaged ({})", ZSTD_getErrorName(result)));
    used_ = in.pos;
    ended_ = result == 0;
  }
  return out.pos;
}

}  // namespace ql::shard
