// Makes text printable, handles UTF-8 and names of enumerations, suggests similar names ("did you
// mean ...?"), finds strings in a text that arrives, and reads and writes numbers.
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
#include <utility>
#include <vector>

#include "base/error.h"

namespace ql {

// These make text from files and command lines safe for a terminal.

// Replaces control characters (ASCII, and U+0080 to U+009F) by '?', so that damaged or hostile
// input cannot move the cursor, hide lines or add columns.
std::string printable(std::string text);

// Does the same for messages that may have several lines: line feeds and tabs stay.
std::string printable_lines(std::string text);

// Says where an escaped text stands: among words that spaces separate, in the quotes of a message,
// or alone on a line or in a cell of a table.
enum class Among { kWords, kQuotes, kLines };

// Escapes text so that unescaped() can restore it: a tab, line feed, carriage return or backslash
// becomes \t, \n, \r or two backslashes, and each byte of invalid UTF-8 becomes \xNN. With kWords
// and kQuotes, each byte of a blank, invisible, private or unassigned character becomes \xNN, too.
// kQuotes leaves U+0020 as it is. The result of kLines must never change, because vocabularies are
// written and hashed with it.
std::string escaped(std::string_view text, Among among = Among::kWords);
// Returns the text escaped (Among::kQuotes) and enclosed in the single quotes that messages use.
std::string in_quotes(std::string_view text);

// Returns the text that escaped() was given. Accepts \xNN for any byte. Returns nothing when a
// backslash begins no known escape.
std::optional<std::string> unescaped(std::string_view text);

// The name of the byte 0x41 in a vocabulary is "<0x41>". byte_token() returns this name, and
// parse_byte_token() returns the byte of a name, or nothing for any other text.
std::string byte_token(unsigned char byte);
std::optional<unsigned char> parse_byte_token(std::string_view token);

// Replaces every `pattern` in the text by `by`.
std::string replaced(std::string_view text, std::string_view pattern, std::string_view by);

// Puts a space before each line that is not empty, except the first, as encoding for a
// SentencePiece model does.
std::string with_line_blanks(std::string_view text);

// Returns true for the ASCII blanks: space, tab, line feed, vertical tab, form feed, carriage
// return.
inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// UTF-8 means here what the Unicode standard defines (chapter 3, table 3-7): no overlong forms, no
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
      length;  // in bytes, at least 1; for an invalid sequence, the length of its valid beginning
  bool valid;
};

// Returns the code point that begins at text[position]. `position` must be less than text.size().
CodePoint code_point_at(std::string_view text, std::size_t position);

// Returns the offset of the first byte outside a well-formed sequence, or npos when there is none.
std::size_t find_invalid_utf8(std::string_view text);

// Replaces every invalid sequence by one U+FFFD. An invalid sequence is the longest beginning of a
// well-formed one, or a single byte, as the Unicode standard recommends and browsers do.
std::string replace_invalid_utf8(std::string_view text);

// Returns the number of bytes that do not continue a sequence, which is the number of code points
// when `text` is valid.
std::int64_t count_code_points(std::string_view text);

// Returns the number of bytes (0 to 3) at the end that begin a well-formed sequence and stop before
// its end, so that more input could complete the sequence.
std::size_t incomplete_suffix(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

// The values of an enumeration have names in files and options. A function next to the enumeration
// returns these names in the order of the values, which count from 0:
//
//   constexpr auto names_of(Pool) { return std::array{"max", "mean"}; }

// Returns the names in a table with a row for each value of an enumeration. A row is a struct
// with the `name` and other properties of the value. The enumeration's names_of() returns
// names_in(table).
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

// Throws FormatError that lists all names if `name` is unknown. `where` is the key or option that
// the name was given for.
template <typename Value>
Value value_named(const std::string& name, const std::string& where) {
  const std::optional<Value> value = find_named<Value>(name);
  if (!value) {
    throw FormatError(where, fmt::format("'{}' is unknown", name),
                      fmt::format("known names are {}", fmt::join(all_names<Value>(), ", ")));
  }
  return *value;
}

// This function finds suggestions: "Did you mean ...?"

// Returns the candidate with the smallest edit distance to `typed`, if at most a third of the
// letters would have to change. Otherwise, if `typed` has two letters or more, returns the first
// candidate that begins with it. Returns "" if no candidate fits.
std::string nearest(std::string_view typed, const std::vector<std::string>& candidates);

// Finds the first of several strings in a text that arrives in parts.
class StopStrings {
 public:
  // The strings must not be empty.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}
  // Takes the next part of the text, and has no effect once a string was found.
  void put(std::string_view text);
  bool found() const { return found_; }
  // Returns the number of bytes of the text that certainly come before a string: up to the string
  // that was found, or to a place where one may have begun.
  std::size_t settled() const { return settled_; }

 private:
  std::vector<std::string> strings_;
  std::string tail_;  // the text after the settled bytes
  std::size_t settled_ = 0;
  bool found_ = false;
};

// These functions read numbers with units, as users type them, and accept no other text.

// Parses "12", "10k", "64M", "2G", "64Ki", "1Mi": integers; k, M, G, T are powers of 1000, and Ki,
// Mi, Gi, Ti are powers of 1024. '-' is the only sign. Returns nothing for any other text and on
// overflow.
std::optional<std::int64_t> parse_integer(std::string_view text);

// Parses "0.25", "2.5e-4", "10k". Only finite numbers are accepted.
std::optional<double> parse_real(std::string_view text);

// Parses "1" as {1} and "4,8,16" as {4, 8, 16}. Empty items are refused.
std::optional<std::vector<std::int64_t>> parse_integer_list(std::string_view text);

// Splits at every `separator`; "a,,b" gives three parts, "" gives one empty part.
std::vector<std::string> split(std::string_view text, char separator);

// Returns "2,088,628" for 2088628. This is for human readers; scripts get plain digits.
std::string with_thousands(std::int64_t value);
// Returns "1 token" or "2 tokens" for the unit "token".
std::string counted(std::int64_t count, std::string_view unit);

// Returns "47.41" for 47.4083, and "1.235e+06" for 1,234,567.8: a perplexity has no upper bound.
std::string human_perplexity(double perplexity);

// Returns "1.5 KiB" for 1536.
std::string human_bytes(std::int64_t bytes);

// Returns "1m15s" for 75.2, and "1h01m" for 3700.
std::string human_seconds(double seconds);

}  // namespace ql
