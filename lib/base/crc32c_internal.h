// CRC-32C (Castagnoli's polynomial, RFC 3720): the checksum of TensorBoard's records.
#pragma once

#include <cstdint>
#include <string_view>

namespace ql {

std::uint32_t crc32c(std::string_view data);

}  // namespace ql
