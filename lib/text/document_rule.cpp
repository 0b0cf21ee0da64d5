#include "text/document_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/names.h"

namespace ql::text {

bool has_blank_head(std::string_view line, Blanks blanks) {
  const std::size_t end = std::min(line.size(), kLineHead);
  for (std::size_t i = 0; i < end;) {
    // Most lines have a letter of ASCII here.
    if (const auto byte = static_cast<unsigned char>(line[i]); byte > ' ' && byte < 0x7F) {
      return false;
    }
    const std::size_t length = blank_at(line, i, blanks);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

DocumentRule::DocumentRule(const std::string& rule)
    : kind_(find_named<Kind>(rule).value_or(Kind::kPattern)) {
  if (kind_ != Kind::kPattern) return;
  if (rule.empty()) {
    throw UsageError("--document", "an empty rule", "give blank, file, line, none or a pattern");
  }
  try {
    pattern_ =
        std::make_shared<const std::regex>(rule, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    throw UsageError("--document",
                     fmt::format("'{}' is no regular expression ({})", rule, error.what()),
                     "give blank, file, line, none or an ECMAScript pattern");
  }
  // A pattern that can only match at the beginning need not be tried anywhere else.
  anchored_ = rule.front() == '^' && rule.find('|') == std::string::npos;
}

bool DocumentRule::begins_at(std::string_view line, const LineHistory& before,
                             Blanks blanks) const {
  if (kind_ == Kind::kLine) return true;
  if (!before.any_text) return false;
  if (kind_ == Kind::kBlank) return before.after_blank && !has_blank_head(line, blanks);
  if (kind_ != Kind::kPattern || line.size() > kLineHead) return false;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const auto flags =
      anchored_ ? std::regex_constants::match_continuous : std::regex_constants::match_default;
  return std::regex_search(line.begin(), line.end(), *pattern_, flags);
}

}  // namespace ql::text
