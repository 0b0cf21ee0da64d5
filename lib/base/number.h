// Strict numbers with units, as typed on a command line or in a --set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ql {

// "12", "10k", "64M", "2G", "64Ki", "1Mi": whole numbers; k, M, G, T are powers of 1000, Ki, Mi,
// Gi, Ti of 1024. Nothing else may stand before or after; no sign but '-', no overflow.
std::optional<std::int64_t> parse_integer(std::string_view text);

// "0.25", "2.5e-4", "10k". Finite numbers only.
std::optional<double> parse_real(std::string_view text);

// "1" -> {1}; "4,8,16" -> {4, 8, 16}. Empty items are refused.
std::optional<std::vector<std::int64_t>> parse_integer_list(std::string_view text);

// Splits at every `separator`; "a,,b" gives three parts, "" gives one empty part.
std::vector<std::string> split(std::string_view text, char separator);

// 2088628 -> "2,088,628": for people; scripts get plain digits.
std::string with_thousands(std::int64_t value);

// 47.4083 -> "47.41"; 1,234,567.8 -> "1.235e+06": a perplexity, which has no largest value.
std::string human_perplexity(double perplexity);

// 1536 -> "1.5 KiB".
std::string human_bytes(std::int64_t bytes);

// 75.2 -> "1m15s"; 3700 -> "1h01m".
std::string human_seconds(double seconds);

}  // namespace ql
