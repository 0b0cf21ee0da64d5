#include "shard/zstd_frame_internal.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/little_endian.h"
#include "shard/damaged_file_internal.h"

namespace ql::shard {

namespace {

// Bytes that are read from a file at once; frames of the window's size would not gain by more.
constexpr std::int64_t kPieceBytes = std::int64_t{128} << 10;

// Returns what a function of zstd's compressor returned.
std::size_t check_compression(std::size_t result) {
  if (ZSTD_isError(result) != 0) {
    throw Error("zstd", fmt::format("cannot compress: {}", ZSTD_getErrorName(result)));
  }
  return result;
}

void set(const CompressionContext& context, ZSTD_cParameter parameter, int value) {
  check_compression(ZSTD_CCtx_setParameter(context.get(), parameter, value));
}

// zstd has no such level, but its fast strategy can be told to look only at each few thousandth
// byte. It would then store bytes as they are; that they shall be coded is a parameter without a
// stable name. Without it there is no sense in the other, and level 0 is level 1.
void leave_out_search(const CompressionContext& context) {
  constexpr auto kLiteralCompression = ZSTD_c_experimentalParam5;
  constexpr int kEnable = 1, kStride = 4096;
  if (ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), kLiteralCompression, kEnable)) == 0) {
    set(context, ZSTD_c_targetLength, kStride);
  }
}

CompressionContext make_compression_context(int level) {
  CompressionContext context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  set(context, ZSTD_c_compressionLevel, std::max(level, 1));
  set(context, ZSTD_c_checksumFlag, 1);
  return context;
}

DecompressionContext make_decompression_context() {
  DecompressionContext context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  return context;
}

}  // namespace

void FreeContext::operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
void FreeContext::operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }

FrameCompressor::FrameCompressor(int level, int bytes_per_id)
    : context_(make_compression_context(level)) {
  // Repetitions of less than two ids cost more than they save, in time and in bytes. 7 is the most
  // that the strategy of level 1 can be told, and the other levels are better left alone.
  if (level <= 1 && bytes_per_id == 4) set(context_, ZSTD_c_minMatch, 7);
  if (level == 0) leave_out_search(context_);
}

std::string FrameCompressor::compress(std::string_view content) {
  std::string frame(ZSTD_compressBound(content.size()), '\0');
  frame.resize(check_compression(
      ZSTD_compress2(context_.get(), frame.data(), frame.size(), content.data(), content.size())));
  return frame;
}

FrameDecompressor::FrameDecompressor() : context_(make_decompression_context()) {}

std::string FrameDecompressor::decompress(std::string_view frame, std::size_t content_size,
                                          void* content) {
  // ZSTD_decompressDCtx would also take several frames, or skip some: there must be just one.
  const std::size_t frame_size = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(frame_size) != 0) {
    return fmt::format("not a zstd frame ({})", ZSTD_getErrorName(frame_size));
  }
  if (frame_size != frame.size()) {
    return fmt::format("{} bytes, but its zstd frame has {}", frame.size(), frame_size);
  }
  const unsigned long long stated = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (stated != content_size) {
    return fmt::format("the zstd frame does not state its content's size of {} bytes",
                       content_size);
  }
  const std::size_t size =
      ZSTD_decompressDCtx(context_.get(), content, content_size, frame.data(), frame.size());
  if (ZSTD_isError(size) != 0) return fmt::format("damaged ({})", ZSTD_getErrorName(size));
  if (size != content_size) {
    return fmt::format("{} bytes of content, expected {}", size, content_size);
  }
  return "";
}

FrameStreamWriter::FrameStreamWriter(int level, std::int64_t content_size)
    : context_(make_compression_context(level)) {
  check_compression(
      ZSTD_CCtx_setPledgedSrcSize(context_.get(), static_cast<unsigned long long>(content_size)));
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
  content_left_ -= static_cast<std::int64_t>(size);
  if (content_left_ < 0) throw std::logic_error("more of a frame asked for than its content");
  ZSTD_outBuffer out = {content, size, 0};
  // The frame's end, with its checksum, is read with the last content. zstd fails there when it had
  // less content than it states.
  for (bool ended = false; out.pos < out.size || (content_left_ == 0 && !ended);) {
    if (used_ == piece_.size()) load_piece();
    ZSTD_inBuffer in = {piece_.data(), piece_.size(), used_};
    const std::size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
    if (ZSTD_isError(result) != 0) fail(fmt::format("damaged ({})", ZSTD_getErrorName(result)));
    used_ = in.pos;
    ended = result == 0;
  }
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

std::optional<std::uint32_t> frame_checksum(std::string_view frame) {
  // The descriptor stands behind the magic number, the checksum at the end (RFC 8878, 3.1.1).
  constexpr std::size_t kDescriptor = 4, kChecksumBytes = 4;
  constexpr unsigned char kHasChecksum = 1 << 2;
  if (frame.size() <= kDescriptor + kChecksumBytes) return std::nullopt;
  if ((static_cast<unsigned char>(frame[kDescriptor]) & kHasChecksum) == 0) return std::nullopt;
  return load_little_endian<std::uint32_t>(frame.data() + frame.size() - kChecksumBytes);
}

}  // namespace ql::shard
