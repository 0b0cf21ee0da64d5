#include "text/lowercase_internal.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>

#include <stdexcept>

#include "base/error.h"

namespace ql::text {

std::string lowercase(std::string_view text) {
  constexpr std::size_t kLongestText = std::size_t{1} << 30;
  if (text.size() > kLongestText) throw std::logic_error("lowercase: text above 1 GiB");
  const auto size = static_cast<std::int32_t>(text.size());
  std::string lower;
  icu::StringByteSink<std::string> sink(&lower, size);
  UErrorCode error = U_ZERO_ERROR;
  icu::CaseMap::utf8ToLower("", 0, {text.data(), size}, sink, nullptr, error);
  if (U_FAILURE(error)) throw Error("ICU", u_errorName(error));
  return lower;
}

}  // namespace ql::text
