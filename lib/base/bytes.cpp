// Computes hashes with xxHash, computes CRC-32C with a table, and converts to and from base64.

#include "base/bytes.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>

namespace ql {

static std::string hexadecimal(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::uint64_t xxh64(const void* data, std::size_t size, std::uint64_t seed) {
  return XXH64(data, size, seed);
}

std::string content_hash(std::string_view data) {
  return hexadecimal(XXH3_128bits(data.data(), data.size()));
}

ContentHasher::ContentHasher() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void ContentHasher::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void ContentHasher::update(const void* data, std::size_t size) {
  if (size > 0) XXH3_128bits_update(state_.get(), data, size);
}

std::string ContentHasher::digest() const { return hexadecimal(XXH3_128bits_digest(state_.get())); }

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // in reverse bit order, as are remainders

// Entry i of the table is the remainder after eight steps of the polynomial division that starts
// with i.
static constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest & 1U) != 0 ? rest >> 1U ^ kPolynomial : rest >> 1U;
    }
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t rest = 0xFFFFFFFF;
  for (const char letter : data) {
    rest = rest >> 8U ^ kTable[(rest ^ static_cast<unsigned char>(letter)) & 0xFFU];
  }
  return ~rest;
}

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static std::uint32_t byte_at(std::string_view data, std::size_t position) {
  return position < data.size() ? static_cast<unsigned char>(data[position]) : 0;
}

std::string base64_encode(std::string_view data) {
  std::string text;
  text.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < data.size(); i += 3) {
    const std::uint32_t bits =
        byte_at(data, i) << 16 | byte_at(data, i + 1) << 8 | byte_at(data, i + 2);
    const std::size_t digits = std::min<std::size_t>(3, data.size() - i) + 1;
    for (std::size_t digit = 0; digit < 4; ++digit) {
      text.push_back(digit < digits ? kAlphabet[(bits >> (18 - 6 * digit)) & 63] : '=');
    }
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  std::string data;
  data.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int unused = 0;  // number of bits that are not in `data` yet
  for (const char digit : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<std::uint32_t>(kAlphabet.find(digit) & 63);
    unused += 6;
    if (unused < 8) continue;
    unused -= 8;
    data.push_back(static_cast<char>((bits >> unused) & 0xFF));
  }
  // The comparison finds characters outside the alphabet, wrong padding, and unused bits of the
  // last character that are not 0.
  if (base64_encode(data) != text) return std::nullopt;
  return data;
}

}  // namespace ql
