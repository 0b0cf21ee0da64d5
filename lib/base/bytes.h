// Reads and writes integers as file formats store them, and computes checksums, hashes and base64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace ql {

// The file formats of this project store integers like this: unsigned, little-endian, at any
// offset.

template <typename Number>
Number load_little_endian(const void* data) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  Number value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    value = static_cast<Number>(value | static_cast<Number>(bytes[i]) << (8 * i));
  }
  return value;
}

template <typename Number>
void store_little_endian(void* data, Number value) {
  auto* bytes = static_cast<unsigned char*>(data);
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  }
}

template <typename Number>
void append_little_endian(std::string& text, Number value) {
  const std::size_t end = text.size();
  text.resize(end + sizeof(Number));
  store_little_endian(&text[end], value);
}

// These checksums and hashes find damage, not forgery.

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed = 0);

// Returns the 128-bit XXH3 hash as 32 hexadecimal digits. This is the hash of vocabularies and
// files.
std::string content_hash(std::string_view data);

// Computes content_hash() of data that comes in pieces.
class ContentHasher {
 public:
  ContentHasher();
  void update(const void* data, std::size_t size);
  std::string digest() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

// CRC-32C (Castagnoli's polynomial, RFC 3720) is the checksum of TensorBoard's records.

std::uint32_t crc32c(std::string_view data);

// Base64 (RFC 4648, with padding, without line ends) carries binary data inside JSON.

std::string base64_encode(std::string_view data);

// Returns nothing unless `text` is exactly what base64_encode() writes.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace ql
