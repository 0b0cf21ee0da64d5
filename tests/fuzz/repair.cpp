// Implements the repair of checksums in frames, streams and JSON.

#include "fuzz/repair.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "shard/token_stream.h"
#include "shard/zstd_frame.h"

namespace ql::fuzz {

namespace {

constexpr std::size_t kChecksumBytes = 4;

// Returns nothing for bytes that are not a frame, even with any checksum, and for too long content.
std::optional<std::string> content_of(std::string_view frame) {
  constexpr std::size_t kLongest = std::size_t{4} << 20;
  // This is ZSTD_d_forceIgnoreChecksum, which has no stable name.
  constexpr auto kIgnoreChecksum = ZSTD_d_experimentalParam3;
  const std::size_t size = stated_size(frame);
  if (size > kLongest) return std::nullopt;
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     ZSTD_freeDCtx);
  ZSTD_DCtx_setParameter(context.get(), kIgnoreChecksum, 1);
  std::string content(size, '\0');
  const std::size_t result =
      ZSTD_decompressDCtx(context.get(), content.data(), size, frame.data(), frame.size());
  if (ZSTD_isError(result) != 0 || result != size) return std::nullopt;
  return content;
}

std::uint32_t checksum_of(std::string_view content) {
  return static_cast<std::uint32_t>(xxh64(content.data(), content.size()));
}

}  // namespace

std::vector<std::string> split_frames(std::string_view file) {
  std::vector<std::string> frames;
  while (!file.empty()) {
    std::size_t size = ZSTD_findFrameCompressedSize(file.data(), file.size());
    if (ZSTD_isError(size) != 0) size = file.size();
    frames.emplace_back(file.substr(0, size));
    file.remove_prefix(size);
  }
  return frames;
}

std::string repaired_frame(std::string frame) {
  if (!shard::frame_checksum(frame)) return frame;
  if (const auto content = content_of(frame)) {
    store_little_endian(&frame[frame.size() - kChecksumBytes], checksum_of(*content));
  }
  return frame;
}

std::size_t stated_size(std::string_view frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  const bool unknown = size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR;
  return unknown ? 0 : static_cast<std::size_t>(size);
}

std::uint32_t content_checksum(std::string_view frame) {
  const auto content = content_of(frame);
  return content ? checksum_of(*content) : 0;
}

std::string repaired_stream(std::string stream) {
  constexpr std::size_t kLengthAt = 12, kHeaderStart = 16, kChecksum = 8, kBlockStart = 8;
  if (stream.size() < kHeaderStart) return stream;
  std::size_t end = kHeaderStart + load_little_endian<std::uint32_t>(&stream[kLengthAt]);
  if (end + kChecksum > stream.size()) return stream;
  store_little_endian(&stream[end], xxh64(stream.data(), end));
  const std::string_view header = std::string_view(stream).substr(0, end);
  const std::size_t bytes_per_id =
      header.find("\"bytes_per_id\":4") != std::string_view::npos ? 4 : 2;
  ContentHasher ids;
  std::uint64_t number = 0;
  for (std::size_t at = end + kChecksum; at + kBlockStart <= stream.size(); ++number) {
    const std::size_t payload = at + kBlockStart;
    end = payload + load_little_endian<std::uint32_t>(&stream[at + 4]);
    if (end + kChecksum > stream.size()) break;
    const std::string_view type = std::string_view(stream).substr(at, 4);
    if (type == shard::kDataBlock && end - payload >= 8) {
      const std::size_t tokens = load_little_endian<std::uint32_t>(&stream[payload]);
      const std::size_t bytes = std::min(tokens * bytes_per_id, end - payload);
      ids.update(&stream[end - bytes], bytes);
    }
    if (type == shard::kEndBlock) {
      std::string json = stream.substr(payload, end - payload);
      replace_hash(json, "ids_hash", ids.digest());
      std::copy_n(json.begin(), std::min(json.size(), end - payload), &stream[payload]);
    }
    store_little_endian(&stream[end], xxh64(&stream[at], end - at, number));
    at = end + kChecksum;
  }
  return stream;
}

void replace_hash(std::string& json, std::string_view key, const std::string& hash) {
  std::size_t at = json.find('"' + std::string(key) + '"');
  if (at == std::string::npos) return;
  at = json.find('"', at + key.size() + 2);
  if (at == std::string::npos) return;
  const std::size_t end = json.find_first_not_of("0123456789abcdef", at + 1);
  json.replace(at + 1, (end == std::string::npos ? json.size() : end) - at - 1, hash);
}

}  // namespace ql::fuzz
