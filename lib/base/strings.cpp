// Reads and checks UTF-8, computes edit distances, reads and writes numbers with units, and escapes
// text by ICU's character properties.

#include "base/strings.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace ql {

// The escape of each of these is a backslash and the character at the same index in kNames.
constexpr std::string_view kNamed = "\t\n\r\\", kNames = "tnr\\";

// Returns false for characters that are invisible, unassigned or private. Combining marks have ink,
// unless Unicode calls them ignorable, as it does variation selectors. The few format characters
// that enclose others, such as U+06DD, have ink, too.
static bool has_ink(char32_t c) {
  constexpr std::uint32_t kNoInk = U_GC_Z_MASK | U_GC_C_MASK;
  constexpr char32_t kEmptyBraille = 0x2800;
  const auto code = static_cast<UChar32>(c);
  if (c > ' ' && c < 0x7F) return true;
  if (u_hasBinaryProperty(code, UCHAR_PREPENDED_CONCATENATION_MARK)) return true;
  return (U_GET_GC_MASK(code) & kNoInk) == 0 && c != kEmptyBraille &&
         !u_hasBinaryProperty(code, UCHAR_DEFAULT_IGNORABLE_CODE_POINT);
}

// Returns the length in bytes of the control character at `i`, or 0 for another character.
static std::size_t control_at(std::string_view text, std::size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
  if (byte < ' ' || byte == 0x7F) return 1;
  return byte == 0xC2 && next >= 0x80 && next < 0xA0 ? 2 : 0;
}

static std::string without_controls(std::string text, std::string_view kept) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t length = control_at(text, i);
    if (length > 0 && kept.find(text[i]) == std::string_view::npos) text.replace(i, length, "?");
  }
  return text;
}

std::string printable(std::string text) { return without_controls(std::move(text), ""); }

std::string printable_lines(std::string text) { return without_controls(std::move(text), "\n\t"); }

std::string escaped(std::string_view text, Among among) {
  std::string result;
  for (std::size_t i = 0, length = 0; i < text.size(); i += length) {
    const std::size_t name = kNamed.find(text[i]);
    const CodePoint point = code_point_at(text, i);
    length = point.length;
    const std::string_view character = text.substr(i, length);
    if (name != std::string_view::npos) {
      result += {'\\', kNames[name]};
    } else if (point.valid && (among == Among::kLines || has_ink(point.value) ||
                               (among == Among::kQuotes && text[i] == ' '))) {
      result += character;
    } else {
      for (const char byte : character) {
        result += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
      }
    }
  }
  return result;
}

std::string in_quotes(std::string_view text) {
  return fmt::format("'{}'", escaped(text, Among::kQuotes));
}

std::optional<std::string> unescaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (const std::size_t name = kNames.find(text[i]); name != std::string_view::npos) {
      result += kNamed[name];
      continue;
    }
    if (text[i] != 'x' || text.size() - i < 3) return std::nullopt;
    const std::size_t high = kDigits.find(text[++i]), low = kDigits.find(text[++i]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
  }
  return result;
}

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<unsigned char> parse_byte_token(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  const std::optional<std::string> byte = unescaped(fmt::format("\\x{}", token.substr(3, 2)));
  if (!byte) return std::nullopt;
  return static_cast<unsigned char>(byte->front());
}

std::string replaced(std::string_view text, std::string_view pattern, std::string_view by) {
  std::string result;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(pattern, begin)) != std::string_view::npos;
       begin = at + pattern.size()) {
    result.append(text.substr(begin, at - begin)).append(by);
  }
  return result.append(text.substr(begin));
}

static const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

// Skips ASCII bytes from `position` on, eight at a time, and returns the offset of the first byte
// not skipped.
static std::size_t skip_ascii(std::string_view text, std::size_t position) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  while (text.size() - position >= sizeof(std::uint64_t)) {
    std::uint64_t bytes;
    std::memcpy(&bytes, text.data() + position, sizeof bytes);
    if ((bytes & kHighBits) != 0) break;
    position += sizeof bytes;
  }
  return position;
}

CodePoint code_point_at(std::string_view text, std::size_t position) {
  std::size_t end = position;
  UChar32 value = 0;
  U8_NEXT(bytes_of(text), end, text.size(), value);
  const bool valid = value >= 0;
  return {valid ? static_cast<char32_t>(value) : kReplacement, end - position, valid};
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t position = skip_ascii(text, 0);
  while (position < text.size()) {
    const CodePoint point = code_point_at(text, position);
    if (!point.valid) return position;
    position += point.length;
    if (point.length == 1) position = skip_ascii(text, position);
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = std::min(find_invalid_utf8(text), text.size());
    clean.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    clean.append(kReplacementUtf8);
    text.remove_prefix(code_point_at(text, 0).length);
  }
  return clean;
}

std::int64_t count_code_points(std::string_view text) {
  // Counts eight bytes at a time. Each of the eight positions has a counter of one byte, which must
  // not overflow.
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::size_t kMostWords = 255;
  std::int64_t count = 0;
  while (text.size() >= sizeof(std::uint64_t)) {
    const std::size_t words = std::min(text.size() / sizeof(std::uint64_t), kMostWords);
    std::uint64_t counts = 0;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t bytes;
      std::memcpy(&bytes, text.data() + i * sizeof bytes, sizeof bytes);
      // A byte continues a sequence when bit 7 is 1 and bit 6 is 0.
      counts += (~bytes >> 7 | bytes >> 6) & kOnes;
    }
    for (; counts > 0; counts >>= 8) count += static_cast<std::int64_t>(counts & 0xFF);
    text.remove_prefix(words * sizeof(std::uint64_t));
  }
  return count + std::count_if(text.begin(), text.end(), [](char c) { return !U8_IS_TRAIL(c); });
}

std::size_t incomplete_suffix(std::string_view text) {
  const auto size = static_cast<std::ptrdiff_t>(text.size());
  std::ptrdiff_t complete = size;
  U8_TRUNCATE_IF_INCOMPLETE(bytes_of(text), 0, complete);
  return static_cast<std::size_t>(size - complete);
}

void append_utf8(std::string& text, char32_t code_point) {
  std::array<char, U8_MAX_LENGTH> bytes{};
  std::size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, code_point);
  text.append(bytes.data(), size);
}

// Returns the smallest number of insertions, deletions, substitutions and swaps of neighbours that
// turn `a` into `b` (optimal string alignment).
static std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> before_previous(width), previous(width), current(width);
  for (std::size_t j = 0; j < width; ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      const std::size_t changed = a[i - 1] == b[j - 1] ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
      }
    }
    before_previous.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

std::string nearest(std::string_view typed, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t shorter = std::min(typed.size(), candidate.size());
    const std::size_t longer = std::max(typed.size(), candidate.size());
    // If the lengths alone show that too much would have to change, the distance is not computed:
    // `typed` may be long.
    if ((longer - shorter) * 3 > longer) continue;
    const std::size_t distance = edit_distance(typed, candidate);
    if (distance * 3 <= longer && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() || typed.size() < 2) return best;
  const auto longer = std::find_if(
      candidates.begin(), candidates.end(),
      [typed](const std::string& candidate) { return candidate.rfind(typed, 0) == 0; });
  return longer != candidates.end() ? *longer : "";
}

constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {{"", 1},
                                                                {"k", 1'000},
                                                                {"M", 1'000'000},
                                                                {"G", 1'000'000'000},
                                                                {"T", 1'000'000'000'000},
                                                                {"Ki", std::int64_t{1} << 10},
                                                                {"Mi", std::int64_t{1} << 20},
                                                                {"Gi", std::int64_t{1} << 30},
                                                                {"Ti", std::int64_t{1} << 40}};

// Reads a number and the unit after it. Returns the unit's factor, or nothing for another text.
template <typename Number>
static std::optional<std::int64_t> read_with_unit(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) return factor;
  }
  return std::nullopt;
}

std::string with_line_blanks(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && text[i - 1] == '\n' && text[i] != '\n') result += ' ';
    result += text[i];
  }
  return result;
}

void StopStrings::put(std::string_view text) {
  if (found_) return;
  tail_ += text;
  std::size_t place = tail_.size();
  for (const std::string& string : strings_) {
    const std::size_t begin = tail_.find(string);
    found_ = found_ || begin != std::string::npos;
    place = std::min(place, begin);
  }
  // Without a string, the text is settled up to the first of its ends that begins a string.
  const auto begins_string = [&](std::size_t begin) {
    return std::any_of(strings_.begin(), strings_.end(), [&](const std::string& string) {
      return string.compare(0, tail_.size() - begin, tail_, begin) == 0;
    });
  };
  if (!found_) {
    place = 0;
    while (place < tail_.size() && !begins_string(place)) ++place;
  }
  settled_ += place;
  tail_.erase(0, place);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto factor = read_with_unit(text, value);
  if (!factor || __builtin_mul_overflow(value, *factor, &value)) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto factor = read_with_unit(text, value);
  if (!factor) return std::nullopt;
  value *= static_cast<double>(*factor);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
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

std::string counted(std::int64_t count, std::string_view unit) {
  return fmt::format("{} {}{}", count, unit, count == 1 ? "" : "s");
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
  // No run takes longer than this, and the conversion to an integer below stays defined.
  if (seconds > 1e15) return "?";
  const auto rounded = static_cast<std::int64_t>(std::llround(seconds));
  if (rounded < 60) return fmt::format("{}s", rounded);
  if (rounded < 3600) return fmt::format("{}m{:02}s", rounded / 60, rounded % 60);
  const std::int64_t minutes = (rounded + 30) / 60;
  if (minutes < 1440) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  const std::int64_t hours = (rounded + 1800) / 3600;
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

}  // namespace ql
