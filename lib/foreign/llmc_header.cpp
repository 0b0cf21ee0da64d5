#include "foreign/llmc_header_internal.h"

#include "base/error.h"
#include "base/little_endian.h"

namespace ql::foreign {

namespace {

constexpr std::int64_t kHeaderBytes = 1024;
// Ids of GPT-2 and of Llama 3; llm.c tells the widths apart by these.
constexpr std::uint32_t kMagic16 = 20240520, kVersion16 = 1;
constexpr std::uint32_t kMagic32 = 20240801, kVersion32 = 7;

}  // namespace

IdRun read_llmc_header(const RandomAccessFile& file, const std::string& name) {
  const auto fail = [&name](const std::string& what) {
    throw FormatError(name, what, "is it a token file that llm.c's scripts wrote, and complete?");
  };
  if (file.size() < kHeaderBytes) {
    fail(fmt::format("{} bytes, less than the header of llm.c's token files", file.size()));
  }
  char bytes[12];
  file.read(0, bytes, sizeof bytes);
  const auto magic = load_little_endian<std::uint32_t>(bytes);
  const auto version = load_little_endian<std::uint32_t>(bytes + 4);
  const std::int64_t tokens = load_little_endian<std::uint32_t>(bytes + 8);
  if (magic != kMagic16 && magic != kMagic32) {
    fail(fmt::format("it begins with {}, expected {} or {}", magic, kMagic16, kMagic32));
  }
  const std::uint32_t expected = magic == kMagic16 ? kVersion16 : kVersion32;
  if (version != expected) fail(fmt::format("version {}, expected {}", version, expected));
  const int bytes_per_id = magic == kMagic16 ? 2 : 4;
  const std::int64_t size = kHeaderBytes + tokens * bytes_per_id;
  if (file.size() != size) {
    fail(fmt::format("{} bytes, expected {} for the {} tokens that its header announces",
                     file.size(), size, tokens));
  }
  return {kHeaderBytes, tokens, {bytes_per_id, false}};
}

std::string encode_llmc_header(int bytes_per_id, std::int64_t tokens) {
  std::string bytes(kHeaderBytes, '\0');
  store_little_endian(&bytes[0], bytes_per_id == 2 ? kMagic16 : kMagic32);
  store_little_endian(&bytes[4], bytes_per_id == 2 ? kVersion16 : kVersion32);
  store_little_endian(&bytes[8], static_cast<std::uint32_t>(tokens));
  return bytes;
}

}  // namespace ql::foreign
