#include "base/crc32c_internal.h"

#include <array>

namespace ql {

namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bit-reversed, as the register is

// The table holds what eight steps of the division make of each value of the lowest byte.
constexpr std::array<std::uint32_t, 256> make_table() {
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

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t rest = 0xFFFFFFFF;
  for (const char letter : data) {
    rest = rest >> 8U ^ kTable[(rest ^ static_cast<unsigned char>(letter)) & 0xFFU];
  }
  return ~rest;
}

}  // namespace ql
