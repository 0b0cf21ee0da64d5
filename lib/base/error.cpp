#include "base/error.h"

#include <cctype>
#include <cerrno>
#include <new>
#include <system_error>

#include "base/signals.h"

namespace ql {

namespace {

// "No space left on device" -> "no space left on device": it stands in the middle of a sentence.
std::string reason(int error_number) {
  std::string text = std::generic_category().message(error_number);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::string cure(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or write to another file system";
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENOMEM:
      return kMemoryCure;
    default:
      return "";
  }
}

}  // namespace

SystemError::SystemError(const std::string& where, const std::string& action, int error_number)
    : Error(where, fmt::format("cannot {}: {}", action, reason(error_number)), cure(error_number)),
      error_number_(error_number) {}

Interrupted::Interrupted(int signal_number, const std::string& place)
    : std::runtime_error(fmt::format("stopped by {}{}{}", signal_name(signal_number),
                                     place.empty() ? "" : " ", place)),
      signal_number_(signal_number) {}

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
