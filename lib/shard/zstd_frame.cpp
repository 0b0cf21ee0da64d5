// Compresses and decompresses frames with libzstd, and reads and writes the seek table at a shard's
// end.

#include "shard/zstd_frame.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/bytes.h"
#include "base/error.h"
#include "shard/manifest.h"

namespace ql::shard {

// This many bytes are read from a file at once. A frame would not be read faster in larger pieces.
constexpr std::int64_t kPieceBytes = std::int64_t{128} << 10;

// Throws when a function of zstd's compressor has failed, and otherwise returns its result.
static std::size_t check_compression(std::size_t result) {
  if (ZSTD_isError(result) != 0) {
    throw Error("zstd", fmt::format("cannot compress: {}", ZSTD_getErrorName(result)));
  }
  return result;
}

static void set(const CompressionContext& context, ZSTD_cParameter parameter, int value) {
  check_compression(ZSTD_CCtx_setParameter(context.get(), parameter, value));
}

// zstd has no level without a search for repetitions. But its fast strategy can be set to search
// only at every 4096th byte or so. zstd would then store the bytes uncompressed, unless an
// experimental parameter asks for entropy coding. If libzstd does not have this parameter, level 0
// is level 1.
static void leave_out_search(const CompressionContext& context) {
  constexpr auto kLiteralCompression = ZSTD_c_experimentalParam5;
  constexpr int kEnable = 1, kStride = 4096;
  if (ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), kLiteralCompression, kEnable)) == 0) {
    set(context, ZSTD_c_targetLength, kStride);
  }
}

static CompressionContext make_compression_context(int level) {
  CompressionContext context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  if (!context) throw std::bad_alloc();
  set(context, ZSTD_c_compressionLevel, std::max(level, 1));
  set(context, ZSTD_c_checksumFlag, 1);
  return context;
}

static DecompressionContext make_decompression_context() {
  DecompressionContext context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context) throw std::bad_alloc();
  return context;
}

FrameCompressor::FrameCompressor(int level, int bytes_per_id)
    : context_(make_compression_context(level)) {
  // Repetitions of less than two ids (8 bytes) cost more than they save, in time and in bytes, so a
  // minimum length is set. 7 is the largest value that the strategy of level 1 accepts. The other
  // levels are better without this setting.
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
  // There must be exactly one frame. ZSTD_decompressDCtx would also accept several frames, and skip
  // skippable frames.
  const std::size_t frame_size = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(frame_size) != 0) {
    return fmt::format("not a zstd frame ({})", ZSTD_getErrorName(frame_size));
  }
  if (frame_size != frame.size()) {
    return fmt::format("the frame has {} bytes, but its zstd data has {}", frame.size(),
                       frame_size);
  }
  const unsigned long long stated = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (stated != content_size) {
    return fmt::format("expected a zstd frame for {} bytes, found another or none", content_size);
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
    // Only the last call must return all output. Before that zstd may hold back output.
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
    fail(fmt::format("expected a zstd frame for {} bytes, found another or none", content_size));
  }
}

void FrameStreamReader::read(void* content, std::size_t size) {
  content_left_ -= static_cast<std::int64_t>(size);
  if (content_left_ < 0) throw std::logic_error("more of a frame asked for than its content");
  ZSTD_outBuffer out = {content, size, 0};
  // The frame's end, with its checksum, is read together with the last content. zstd reports an
  // error there if the frame has less content than it states.
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

void FrameStreamReader::fail(const std::string& what) const { fail_as_damaged(name_, what); }

void FrameStreamReader::load_piece() {
  const auto size = std::min(file_.size() - offset_, kPieceBytes);
  if (size == 0) fail("the zstd frame ends too early");
  piece_.resize(static_cast<std::size_t>(size));
  file_.read(offset_, piece_.data(), piece_.size());
  offset_ += size;
  used_ = 0;
}

std::optional<std::uint32_t> frame_checksum(std::string_view frame) {
  // The descriptor follows the magic number, and the checksum is at the end (RFC 8878, 3.1.1).
  constexpr std::size_t kDescriptor = 4, kChecksumBytes = 4;
  constexpr unsigned char kHasChecksum = 1 << 2;
  if (frame.size() <= kDescriptor + kChecksumBytes) return std::nullopt;
  if ((static_cast<unsigned char>(frame[kDescriptor]) & kHasChecksum) == 0) return std::nullopt;
  return load_little_endian<std::uint32_t>(frame.data() + frame.size() - kChecksumBytes);
}

constexpr std::uint32_t kSkippableMagic = 0x184D2A5E;
constexpr std::uint32_t kSeekableMagic = 0x8F92EAB1;
constexpr unsigned char kWithChecksums = 0x80;
constexpr std::int64_t kHeaderBytes = 8, kEntryBytes = 12, kFooterBytes = 9;

[[noreturn]] static void fail(const std::string& name, const std::string& what) {
  throw FormatError(name, "seek table: " + what,
                    "the file is damaged or not a shard: fetch or pack it again");
}

std::uint32_t seek_checksum(const void* content, std::size_t size) {
  return static_cast<std::uint32_t>(xxh64(content, size));
}

std::string encode_seek_table(const std::vector<SeekEntry>& entries) {
  std::string bytes;
  bytes.reserve(entries.size() * kEntryBytes + kHeaderBytes + kFooterBytes);
  append_little_endian(bytes, kSkippableMagic);
  append_little_endian(bytes,
                       static_cast<std::uint32_t>(entries.size() * kEntryBytes + kFooterBytes));
  for (const SeekEntry& entry : entries) {
    append_little_endian(bytes, entry.frame_bytes);
    append_little_endian(bytes, entry.content_bytes);
    append_little_endian(bytes, entry.checksum);
  }
  append_little_endian(bytes, static_cast<std::uint32_t>(entries.size()));
  append_little_endian(bytes, kWithChecksums);
  append_little_endian(bytes, kSeekableMagic);
  return bytes;
}

std::vector<SeekEntry> read_seek_table(const RandomAccessFile& file, const std::string& name) {
  if (file.size() < kHeaderBytes + kFooterBytes) {
    fail(name, fmt::format("the file of {} bytes is too short for one", file.size()));
  }
  unsigned char footer[kFooterBytes];
  file.read(file.size() - kFooterBytes, footer, sizeof footer);
  if (load_little_endian<std::uint32_t>(footer + 5) != kSeekableMagic) {
    fail(name, "its magic number is missing at the file's end");
  }
  if (footer[4] != kWithChecksums) {
    fail(name, fmt::format("expected the flags {:#04x} (entries with checksums), found {:#04x}",
                           kWithChecksums, footer[4]));
  }
  const std::int64_t frames = load_little_endian<std::uint32_t>(footer);
  const std::int64_t table_bytes = kHeaderBytes + frames * kEntryBytes + kFooterBytes;
  if (frames < 1 || frames > kMostFrames || table_bytes > file.size()) {
    fail(name, fmt::format("a file of {} bytes cannot have this number of frames: {}", file.size(),
                           frames));
  }

  const std::int64_t table_start = file.size() - table_bytes;
  std::string bytes(static_cast<std::size_t>(table_bytes), '\0');
  file.read(table_start, bytes.data(), bytes.size());
  if (load_little_endian<std::uint32_t>(&bytes[0]) != kSkippableMagic ||
      load_little_endian<std::uint32_t>(&bytes[4]) != table_bytes - kHeaderBytes) {
    fail(name, fmt::format("expected {} entries at byte {}, found none", frames, table_start));
  }

  std::vector<SeekEntry> entries(static_cast<std::size_t>(frames));
  std::int64_t frame_bytes = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const char* entry = &bytes[kHeaderBytes + i * kEntryBytes];
    entries[i] = {load_little_endian<std::uint32_t>(entry),
                  load_little_endian<std::uint32_t>(entry + 4),
                  load_little_endian<std::uint32_t>(entry + 8)};
    if (entries[i].content_bytes < 1 || entries[i].content_bytes > kLargestFrameBytes) {
      fail(name, fmt::format("frame {}: {} bytes of content, expected 1 to {}", i,
                             entries[i].content_bytes, kLargestFrameBytes));
    }
    if (entries[i].frame_bytes > 2 * kLargestFrameBytes) {
      fail(name, fmt::format("frame {}: {} compressed bytes, expected at most {}", i,
                             entries[i].frame_bytes, 2 * kLargestFrameBytes));
    }
    frame_bytes += entries[i].frame_bytes;
  }
  if (frame_bytes != table_start) {
    fail(name, fmt::format("expected {} bytes of compressed ids before the table, found {}",
                           frame_bytes, table_start));
  }
  return entries;
}

}  // namespace ql::shard
