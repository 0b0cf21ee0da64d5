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

// The same for a word among others with blanks between them, from which the text can be told again:
// a tab, line feed, carriage return or backslash becomes \t, \n, \r or two backslashes, each byte
// of a blank, of another control character or of invalid UTF-8 \xNN.
std::string escaped(std::string_view text);

// The text that escaped() was given. Other characters may be written as \xNN, too. Nothing when a
// backslash begins no such escape.
std::optional<std::string> unescaped(std::string_view text);

}  // namespace ql
