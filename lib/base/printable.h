// Text from files and command lines on its way to a terminal.
#pragma once

#include <string>

namespace ql {

// Control characters (ASCII, and U+0080 to U+009F) become '?', so that damaged or hostile input
// cannot move the cursor, hide lines or add columns.
std::string printable(std::string text);

// The same for words that may have several lines: line feeds and tabs stay.
std::string printable_lines(std::string text);

}  // namespace ql
