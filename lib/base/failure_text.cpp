#include "base/failure_text.h"

#include <new>
#include <system_error>

#include "base/error.h"

namespace ql {

std::string failure_text(const std::exception& error) {
  const std::string cure = fmt::format("; {}", kMemoryCure);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory" + cure;
  std::string text = error.what();
  if (dynamic_cast<const Error*>(&error) != nullptr ||
      dynamic_cast<const std::system_error*>(&error) != nullptr) {
    return text;
  }
  if (dynamic_cast<const std::logic_error*>(&error) != nullptr) {
    return fmt::format("internal error: {}; please report it", text);
  }
  const bool memory = text.find("can't allocate memory") != std::string::npos ||
                      text.find("out of memory") != std::string::npos;
  return text.substr(0, text.find('\n')) + (memory ? cure : "");
}

}  // namespace ql
