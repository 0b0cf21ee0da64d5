// Numbers as the formats store them: unsigned, little-endian, unaligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ql {

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

}  // namespace ql
