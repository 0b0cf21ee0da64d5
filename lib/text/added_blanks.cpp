// Removes the spaces that encoding added to the text of pieces.

#include "text/added_blanks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ql::text {

void BlankRemover::append(std::string_view token, std::string& text) {
  if (token.empty()) return;
  const LeadingBlanks leading =
      std::exchange(line_empty_, false) ? added_.leading : LeadingBlanks::kNone;
  if (leading == LeadingBlanks::kFirstToken) {
    std::copy_if(token.begin(), token.end(), std::back_inserter(text),
                 [](char c) { return c != ' '; });
  } else if (leading != LeadingBlanks::kNone && token.front() == ' ') {
    token.remove_prefix(1);
    text.append(token);
    line_empty_ = token.empty() && leading == LeadingBlanks::kAll;
  } else {
    text.append(token);
  }
  if (added_.after_feed && !token.empty() && token.back() == '\n') line_empty_ = true;
}

}  // namespace ql::text
