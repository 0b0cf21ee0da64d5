#include "text/lowercase_internal.h"

#include <unicode/ucasemap.h>

#include <memory>
#include <stdexcept>

#include "base/error.h"

namespace ql::text {
namespace {

constexpr std::size_t kLongestText = std::size_t{1} << 30;

struct CloseCaseMap {
  void operator()(UCaseMap* map) const { ucasemap_close(map); }
};

// Shared by all threads: ICU's mapping only reads it.
const UCaseMap* case_map() {
  static const std::unique_ptr<UCaseMap, CloseCaseMap> kMap = [] {
    UErrorCode error = U_ZERO_ERROR;
    std::unique_ptr<UCaseMap, CloseCaseMap> map(ucasemap_open("", 0, &error));
    if (U_FAILURE(error)) throw Error("ICU", u_errorName(error));
    return map;
  }();
  return kMap.get();
}

}  // namespace

std::string lowercase(std::string_view text) {
  if (text.size() > kLongestText) throw std::logic_error("lowercase: text above 1 GiB");
  const auto size = static_cast<std::int32_t>(text.size());
  std::string lower(text.size() + text.size() / 8 + 16, '\0');
  for (;;) {
    UErrorCode error = U_ZERO_ERROR;
    const std::int32_t needed =
        ucasemap_utf8ToLower(case_map(), lower.data(), static_cast<std::int32_t>(lower.size()),
                             text.data(), size, &error);
    const bool fits = error != U_BUFFER_OVERFLOW_ERROR;
    if (fits && U_FAILURE(error)) throw Error("ICU", u_errorName(error));
    lower.resize(static_cast<std::size_t>(needed));
    if (fits) return lower;
  }
}

}  // namespace ql::text
