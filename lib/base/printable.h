// Text from files and command lines on its way to a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ql {

// Control characters (ASCII, and U+0080 to U+009F) become '?', so that damaged or hostile input
// cannot move the cursor, hide lines or add columns.
std::string printable(std::string text);

// The same for words that may have several lines: line feeds and tabs stay.
std::string printable_lines(std::string text);

// Text stands among words with blanks between them, in the quotes of a message, or alone on a line.
enum class Among { kWords, kQuotes, kLines };

// The same for text that can be read back: a tab, line feed, carriage return or backslash becomes
// \t, \n, \r or two backslashes, and each byte of invalid UTF-8 \xNN. So does, among words and in
// quotes, each byte of a character without ink: blanks (in quotes not U+0020), controls, characters
// that only format or select, private and unassigned ones. kLines is part of how vocabularies are
// written and hashed.
std::string escaped(std::string_view text, Among among = Among::kWords);

// The text that escaped() was given. Other characters may be written as \xNN, too. Nothing when a
// backslash begins no such escape.
std::optional<std::string> unescaped(std::string_view text);

}  // namespace ql
