// Makes text printable, handles UTF-8 and names of enumerations, suggests similar names ("did you
// mean ...?"), and reads and writes numbers.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace ql {

// These make text from files and command lines safe for a terminal.

// Replaces control characters (ASCII, and U+0080 to U+009F) by '?', so that damaged or hostile
// input cannot move the cursor, hide lines or add columns.
std::string printable(std::string text);

// Does the same for messages that may have several lines: line feeds and tabs stay.
std::string printable_lines(std::string text);

// Says where an escaped text stands: among words with blanks between them, in the quotes of a
// message, or alone on a line.
enum class Among { kWords, kQuotes, kLines };

// Escapes text so that it can be read back: a tab, line feed, carriage return or backslash becomes
// \t, \n, \r or two backslashes, and each byte of invalid UTF-8 \xNN. Among words and in quotes the
// bytes of a character without ink become \xNN, too: blanks (in quotes not U+0020), controls,
// format characters, selectors, private and unassigned characters. kLines must not change, because
// vocabularies are written and hashed with it.
std::string escaped(std::string_view text, Among among = Among::kWords);
// Returns the escaped text in the quotes of a message.
std::string in_quotes(std::string_view text);

// Returns the text that escaped() was given. Accepts \xNN for any byte. Returns nothing when a
// backslash begins no known escape.
std::optional<std::string> unescaped(std::string_view text);

// Return "<0x41>" for 0x41, and 0x41 for "<0x41>" (nothing for any other text): the names that
// vocabularies have for bytes.
std::string byte_token(unsigned char byte);
std::optional<unsigned char> parse_byte_token(std::string_view token);

// Replaces every `pattern` in the text.
std::string replaced(std::string_view text, std::string_view pattern, std::string_view by);

// UTF-8 as the Unicode standard defines it (chapter 3, table 3-7): no overlong forms, no
// surrogates, nothing above U+10FFFF.

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kReplacement = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";
// U+FEFF at the beginning of a file marks its encoding.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

inline bool begins_with_mark(std::string_view text) {
  return text.substr(0, kByteOrderMark.size()) == kByteOrderMark;
}

struct CodePoint {
  char32_t value;  // kReplacement when not valid
  std::size_t
      length;  // in bytes, at least 1; for an invalid sequence that of its maximal valid beginning
  bool valid;
};

// Returns the code point that begins at text[position]. `position` must be less than text.size().
CodePoint code_point_at(std::string_view text, std::size_t position);

// Returns the offset of the first byte outside a well-formed sequence, or npos when there is none.
std::size_t find_invalid_utf8(std::string_view text);

// Replaces every invalid sequence by one U+FFFD. A sequence is a maximal beginning of a well-formed
// one, as the Unicode standard recommends and browsers do.
std::string replace_invalid_utf8(std::string_view text);

// Returns the number of bytes that do not continue a sequence, which is the number of code points
// when `text` is valid.
std::int64_t count_code_points(std::string_view text);

// Returns how many bytes at the end are the proper beginning of a well-formed sequence (0 to 3), so
// that more input could complete it.
std::size_t incomplete_suffix(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

// Enumerations have names in files and options. Next to such an enumeration stands
//
//   constexpr auto names_of(Pool) { return std::array{"max", "mean"}; }
//
// with its names in the order of its values, which count from 0.

// If the values have more than names, they are the rows of a table. Its rows are structs with a
// `name`, and names_of() returns names_in(table).
template <typename Row, std::size_t kCount>
constexpr auto names_in(const std::array<Row, kCount>& table) {
  std::array<const char*, kCount> names{};
  for (std::size_t i = 0; i < kCount; ++i) names[i] = table[i].name;
  return names;
}

template <typename Value>
std::vector<std::string> all_names() {
  const auto names = names_of(Value());
  return {names.begin(), names.end()};
}

template <typename Value, typename = std::enable_if_t<std::is_enum_v<Value>>>
std::string to_text(Value value) {
  return names_of(value).at(static_cast<std::size_t>(value));
}

// Returns nothing when no value has this name.
template <typename Value>
std::optional<Value> find_named(std::string_view name) {
  const auto names = names_of(Value());
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<Value>(found - names.begin()));
}

// Throws FormatError that lists all names. `where` is the key or option that the name was given
// for.
template <typename Value>
Value value_named(const std::string& name, const std::string& where) {
  const std::optional<Value> value = find_named<Value>(name);
  if (!value) {
    throw FormatError(where, fmt::format("'{}' is unknown", name),
                      fmt::format("known are {}", fmt::join(all_names<Value>(), ", ")));
  }
  return *value;
}

// "Did you mean ...?"

// Returns the candidate with the smallest edit distance to `typed`, or "" when none is near: more
// than a third of the letters would have to change, and `typed` is not the beginning of one.
std::string nearest(std::string_view typed, const std::vector<std::string>& candidates);

// These read strict numbers with units, as typed on a command line or in a --set.

// Parses "12", "10k", "64M", "2G", "64Ki", "1Mi": whole numbers; k, M, G, T are powers of 1000, Ki,
// Mi, Gi, Ti of 1024. Nothing else may stand before or after; '-' is the only sign; no overflow.
std::optional<std::int64_t> parse_integer(std::string_view text);

// Parses "0.25", "2.5e-4", "10k". Only finite numbers are accepted.
std::optional<double> parse_real(std::string_view text);

// Parses "1" as {1} and "4,8,16" as {4, 8, 16}. Empty items are refused.
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
