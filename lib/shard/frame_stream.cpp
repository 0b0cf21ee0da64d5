#include "shard/frame_stream_internal.h"

#include <zstd.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "shard/damaged_internal.h"

namespace ql::shard {

namespace {

// What is read from the file at once; frames of the window's size would not gain by more.
constexpr std::int64_t kPieceBytes = std::int64_t{128} << 10;

std::size_t checked(std::size_t result) {
  if (ZSTD_isError(result) != 0) {
    throw Error("zstd", fmt::format("cannot compress: {}", ZSTD_getErrorName(result)));
  }
  return result;
}

}  // namespace

struct FrameStreamWriter::State {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::int64_t expected = 0;  // bytes of content
  std::string ready;
  ~State() { ZSTD_freeCCtx(context); }

  std::string_view compress(std::string_view content, ZSTD_EndDirective end) {
    ready.clear();
    ZSTD_inBuffer in = {content.data(), content.size(), 0};
    for (std::size_t left = 1; left > 0 || in.pos < in.size;) {
      const std::size_t before = ready.size();
      ready.resize(before + ZSTD_CStreamOutSize());
      ZSTD_outBuffer out = {&ready[before], ready.size() - before, 0};
      left = checked(ZSTD_compressStream2(context, &out, &in, end));
      ready.resize(before + out.pos);
      // Only the end has to come out at once; until then zstd may keep what it has.
      if (end == ZSTD_e_continue) left = 0;
    }
    return ready;
  }
};

FrameStreamWriter::FrameStreamWriter(int level, std::int64_t content_size)
    : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
  state_->expected = content_size;
  checked(ZSTD_CCtx_setParameter(state_->context, ZSTD_c_compressionLevel, std::max(level, 1)));
  checked(ZSTD_CCtx_setParameter(state_->context, ZSTD_c_checksumFlag, 1));
  checked(
      ZSTD_CCtx_setPledgedSrcSize(state_->context, static_cast<unsigned long long>(content_size)));
}

FrameStreamWriter::~FrameStreamWriter() = default;

std::string_view FrameStreamWriter::write(std::string_view content) {
  state_->expected -= static_cast<std::int64_t>(content.size());
  if (state_->expected < 0) throw std::logic_error("more content than the frame announced");
  return state_->compress(content, ZSTD_e_continue);
}

std::string_view FrameStreamWriter::finish() {
  if (state_->expected != 0) throw std::logic_error("less content than the frame announced");
  return state_->compress({}, ZSTD_e_end);
}

struct FrameStreamReader::State {
  State(const RandomAccessFile& the_file, std::string the_name, std::int64_t content_size)
      : file(the_file), name(std::move(the_name)), content_left(content_size) {}
  ~State() { ZSTD_freeDCtx(context); }

  ZSTD_DCtx* context = ZSTD_createDCtx();
  const RandomAccessFile& file;
  std::string name;
  std::int64_t content_left;
  std::int64_t offset = 0;  // in the file, behind `piece`
  std::string piece;        // of the file
  std::size_t used = 0;     // of `piece`
  bool ended = false;       // the frame

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(name, what, kDamagedFileCure);
  }

  void load_piece() {
    const auto size = std::min(file.size() - offset, kPieceBytes);
    if (size == 0) fail("the zstd frame does not end");
    piece.resize(static_cast<std::size_t>(size));
    file.read(offset, piece.data(), piece.size());
    offset += size;
    used = 0;
  }

  // Goes on until the output is full or the frame ends.
  void decompress(ZSTD_outBuffer& out) {
    while (!ended && (out.pos < out.size || content_left == static_cast<std::int64_t>(out.pos))) {
      if (used == piece.size()) load_piece();
      ZSTD_inBuffer in = {piece.data(), piece.size(), used};
      const std::size_t result = ZSTD_decompressStream(context, &out, &in);
      if (ZSTD_isError(result) != 0) fail(fmt::format("damaged ({})", ZSTD_getErrorName(result)));
      used = in.pos;
      ended = result == 0;
    }
  }
};

FrameStreamReader::FrameStreamReader(const RandomAccessFile& file, const std::string& name,
                                     std::int64_t content_size)
    : state_(std::make_unique<State>(file, name, content_size)) {
  State& state = *state_;
  if (state.context == nullptr) throw std::bad_alloc();
  state.load_piece();
  const unsigned long long stated =
      ZSTD_getFrameContentSize(state.piece.data(), state.piece.size());
  if (stated != static_cast<unsigned long long>(content_size)) {
    state.fail(
        fmt::format("the zstd frame does not state its content's size of {} bytes", content_size));
  }
}

FrameStreamReader::~FrameStreamReader() = default;

void FrameStreamReader::read(void* content, std::size_t size) {
  State& state = *state_;
  if (static_cast<std::int64_t>(size) > state.content_left) {
    throw std::logic_error("more of a frame asked for than its content");
  }
  ZSTD_outBuffer out = {content, size, 0};
  state.decompress(out);
  if (out.pos != size) state.fail("the zstd frame has less content than it states");
  state.content_left -= static_cast<std::int64_t>(size);
  if (state.content_left > 0) return;
  if (state.used != state.piece.size() || state.offset != state.file.size()) {
    state.fail("data follows the zstd frame");
  }
}

}  // namespace ql::shard
