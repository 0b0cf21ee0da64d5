#include "base/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace ql {

namespace {

// The factor of a unit behind a number; nothing for an unknown one.
std::optional<std::int64_t> unit_factor(std::string_view unit) {
  if (unit.empty()) return 1;
  const std::int64_t base = unit.size() == 2 && unit[1] == 'i' ? 1024 : 1000;
  if (unit.size() > 1 && base == 1000) return std::nullopt;
  switch (unit[0]) {
    case 'k':
      return base == 1000 ? std::optional<std::int64_t>(1000) : std::nullopt;
    case 'K':
      return base == 1024 ? std::optional<std::int64_t>(1024) : std::nullopt;
    case 'M':
      return base * base;
    case 'G':
      return base * base * base;
    case 'T':
      return base * base * base * base;
    default:
      return std::nullopt;
  }
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  // Accumulated below zero, because INT64_MIN has no positive counterpart.
  std::int64_t value = 0;
  while (!text.empty() && is_digit(text[0])) {
    if (__builtin_mul_overflow(value, std::int64_t{10}, &value)) return std::nullopt;
    if (__builtin_sub_overflow(value, std::int64_t{text[0] - '0'}, &value)) return std::nullopt;
    text.remove_prefix(1);
  }
  const auto factor = unit_factor(text);
  if (!factor || __builtin_mul_overflow(value, *factor, &value)) return std::nullopt;
  if (!negative && __builtin_sub_overflow(std::int64_t{0}, value, &value)) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{}) return std::nullopt;
  const auto factor = unit_factor({rest, static_cast<std::size_t>(end - rest)});
  if (!factor) return std::nullopt;
  value *= static_cast<double>(*factor);
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::vector<std::int64_t>> parse_integer_list(std::string_view text) {
  std::vector<std::int64_t> values;
  for (const std::string& item : split(text, ',')) {
    const auto value = parse_integer(item);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string with_thousands(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string human_perplexity(double perplexity) {
  return perplexity < 999999.5 ? fmt::format("{:.2f}", perplexity)
                               : fmt::format("{:.3e}", perplexity);
}

std::string human_bytes(std::int64_t bytes) {
  if (bytes > -1024 && bytes < 1024) return fmt::format("{} B", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (std::fabs(value) >= 1023.95) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  // Longer than any run: keeps the conversion to a whole number defined.
  if (seconds > 1e15) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  const std::int64_t minutes = (whole + 30) / 60;
  if (minutes < 1440) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  const std::int64_t hours = (whole + 1800) / 3600;
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

}  // namespace ql
