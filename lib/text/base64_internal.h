// Base64 (RFC 4648, with padding, no line ends): how binary data travels inside JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ql::text {

std::string base64_encode(std::string_view data);

// nullopt unless `text` is exactly what base64_encode writes.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace ql::text
