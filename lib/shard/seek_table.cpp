#include "shard/seek_table_internal.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"

namespace ql::shard {

namespace {

constexpr std::uint32_t kSkippableMagic = 0x184D2A5E;
constexpr std::uint32_t kSeekableMagic = 0x8F92EAB1;
constexpr unsigned char kWithChecksums = 0x80;
constexpr std::int64_t kHeaderBytes = 8, kEntryBytes = 12, kFooterBytes = 9;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw FormatError(name, "seek table: " + what,
                    "the file is damaged or no shard: fetch or pack it again");
}

}  // namespace

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
    fail(name, fmt::format("descriptor {:#04x}, expected {:#04x} (with checksums)", footer[4],
                           kWithChecksums));
  }
  const std::int64_t frames = load_little_endian<std::uint32_t>(footer);
  const std::int64_t table_bytes = kHeaderBytes + frames * kEntryBytes + kFooterBytes;
  if (frames < 1 || frames > kMostFrames || table_bytes > file.size()) {
    fail(name, fmt::format("{} frames do not fit into a file of {} bytes", frames, file.size()));
  }

  const std::int64_t table_start = file.size() - table_bytes;
  std::string bytes(static_cast<std::size_t>(table_bytes), '\0');
  file.read(table_start, bytes.data(), bytes.size());
  if (load_little_endian<std::uint32_t>(&bytes[0]) != kSkippableMagic ||
      load_little_endian<std::uint32_t>(&bytes[4]) != table_bytes - kHeaderBytes) {
    fail(name, fmt::format("its header is not where {} frames put it", frames));
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
      fail(name, fmt::format("frame {}: {} bytes in the file, more than any frame needs", i,
                             entries[i].frame_bytes));
    }
    frame_bytes += entries[i].frame_bytes;
  }
  if (frame_bytes != table_start) {
    fail(name,
         fmt::format("its frames take {} bytes, but {} precede it", frame_bytes, table_start));
  }
  return entries;
}

}  // namespace ql::shard
