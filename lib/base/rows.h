// Rows of results for scripts: a row is a flat JSON object, and all rows of a table have the same
// keys in the same order.
#pragma once

#include <string>

#include "base/json.h"

namespace ql {

// The keys of a row, and a row, as lines of tab-separated values. What is not known or does not
// apply is null, and written as "-"; a list's items stand with commas between them; real numbers
// have eight digits, but whole ones and halves all of theirs. In a text a tab, line end or
// backslash becomes \t, \n, \r or two backslashes, another control character '?'.
std::string tsv_header(const Json& row);
std::string tsv_line(const Json& row);

// A row on one line, which is not ended. Bytes that are no UTF-8, as a file's name may have them,
// become U+FFFD.
std::string json_line(const Json& row);

}  // namespace ql
