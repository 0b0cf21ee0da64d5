#include "shard/zstd_frame.h"

#include <fmt/format.h>
#include <zstd.h>

#include <new>

#include "base/error.h"

namespace ql::shard {

struct FrameCompressor::State {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::string frame;
  ~State() { ZSTD_freeCCtx(context); }

  void set(ZSTD_cParameter parameter, int value) const {
    const std::size_t result = ZSTD_CCtx_setParameter(context, parameter, value);
    if (ZSTD_isError(result) != 0) {
      throw Error("zstd", fmt::format("parameter {} = {}: {}", static_cast<int>(parameter), value,
                                      ZSTD_getErrorName(result)));
    }
  }
};

FrameCompressor::FrameCompressor(int level) : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
  state_->set(ZSTD_c_compressionLevel, level);
  state_->set(ZSTD_c_checksumFlag, 1);
  state_->set(ZSTD_c_contentSizeFlag, 1);
}

FrameCompressor::~FrameCompressor() = default;
FrameCompressor::FrameCompressor(FrameCompressor&&) noexcept = default;

std::string_view FrameCompressor::compress(std::string_view content) {
  std::string& frame = state_->frame;
  frame.resize(ZSTD_compressBound(content.size()));
  const std::size_t size =
      ZSTD_compress2(state_->context, frame.data(), frame.size(), content.data(), content.size());
  if (ZSTD_isError(size) != 0)
    throw Error("zstd", fmt::format("cannot compress: {}", ZSTD_getErrorName(size)));
  return std::string_view(frame).substr(0, size);
}

struct FrameDecompressor::State {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  ~State() { ZSTD_freeDCtx(context); }
};

FrameDecompressor::FrameDecompressor() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
}

FrameDecompressor::~FrameDecompressor() = default;
FrameDecompressor::FrameDecompressor(FrameDecompressor&&) noexcept = default;

std::string FrameDecompressor::decompress(std::string_view frame, std::size_t content_size,
                                          std::string& content) {
  // ZSTD_decompressDCtx would also take several frames, or skip some: there must be just one.
  const std::size_t frame_size = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(frame_size) != 0)
    return fmt::format("not a zstd frame ({})", ZSTD_getErrorName(frame_size));
  if (frame_size != frame.size())
    return fmt::format("{} bytes, but its zstd frame has {}", frame.size(), frame_size);
  const unsigned long long stated = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (stated != content_size) {
    return fmt::format("the zstd frame does not state its content's size of {} bytes",
                       content_size);
  }
  content.resize(content_size);
  const std::size_t size = ZSTD_decompressDCtx(state_->context, content.data(), content.size(),
                                               frame.data(), frame.size());
  if (ZSTD_isError(size) != 0) return fmt::format("damaged ({})", ZSTD_getErrorName(size));
  if (size != content_size)
    return fmt::format("{} bytes of content, expected {}", size, content_size);
  return "";
}

}  // namespace ql::shard
