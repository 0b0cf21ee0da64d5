#include "shard/zstd_frame_internal.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/little_endian.h"

namespace ql::shard {

namespace {

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

}  // namespace

void FreeContext::operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
void FreeContext::operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }

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

std::size_t check_compression(std::size_t result) {
  if (ZSTD_isError(result) != 0) {
    throw Error("zstd", fmt::format("cannot compress: {}", ZSTD_getErrorName(result)));
  }
  return result;
}

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

int threads_for_frames(int threads, std::int64_t frame_bytes) {
  // For each thread there are two frames, as content and as they are stored.
  constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;
  const std::int64_t bytes_per_thread = std::max<std::int64_t>(4 * frame_bytes, 1);
  return static_cast<int>(
      std::clamp<std::int64_t>(kMostBytes / bytes_per_thread, 1, std::max(threads, 1)));
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
