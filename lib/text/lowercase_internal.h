// Lower case by the Unicode rules (ICU, root locale, full mapping): a final sigma is recognised,
// U+0130 becomes two code points.
#pragma once

#include <string>
#include <string_view>

namespace ql::text {

// `text` is valid UTF-8 of at most 1 GiB. The mapping of a letter never looks across a blank or a
// line end, so text may be cut there.
std::string lowercase(std::string_view text);

}  // namespace ql::text
