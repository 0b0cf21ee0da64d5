// Composes the texts of system errors, and joins several conflicts into one message.

#include "base/error.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/process.h"
#include "base/strings.h"

namespace ql {

std::string Error::compose(const std::string& where, const std::string& what,
                           const std::string& remedy) {
  const std::string text = where.empty() ? what : printable(where) + ": " + what;
  return remedy.empty() ? text : text + "; " + remedy;
}

// Changes "No space left on device" to "no space left on device", because the text stands in the
// middle of a sentence.
static std::string reason(int error_number) {
  std::string text = std::generic_category().message(error_number);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

static std::string remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or write to another file system";
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENOMEM:
      return kMemoryRemedy;
    default:
      return "";
  }
}

SystemError::SystemError(const std::string& where, const std::string& action, int error_number)
    : Error(where, fmt::format("cannot {}: {}", action, reason(error_number)),
            remedy(error_number)),
      error_number_(error_number) {}

Interrupted::Interrupted(int signal_number, const std::string& place)
    : std::runtime_error(fmt::format("stopped by {}{}{}", signal_name(signal_number),
                                     place.empty() ? "" : " ", place)),
      signal_number_(signal_number) {}

// Returns the size in a text of LibTorch such as "you tried to allocate 64 bytes. Error code 12" or
// "Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity". Returns "" if it has none.
static std::string allocation_in(const std::string& text) {
  constexpr const char* kBegin = "ried to allocate ";
  const std::size_t begin = text.find(kBegin);
  if (begin == std::string::npos) return "";
  std::istringstream words(text.substr(begin + std::strlen(kBegin)));
  std::string number, unit;
  if (!(words >> number >> unit)) return "";
  unit = unit.substr(0, unit.find_first_of(".,"));
  const std::optional<std::int64_t> bytes = parse_integer(number);
  return unit == "bytes" && bytes ? human_bytes(*bytes) : number + " " + unit;
}

std::string failure_text(const std::exception& error) {
  // std::filesystem reports a lack of memory as an error of the path.
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      (system != nullptr && system->code() == std::errc::not_enough_memory)) {
    return fmt::format("out of memory; {}", kMemoryRemedy);
  }
  std::string text = error.what();
  if (dynamic_cast<const Error*>(&error) != nullptr || system != nullptr) return text;
  if (dynamic_cast<const std::logic_error*>(&error) != nullptr) {
    return fmt::format("internal error: {}; please report it", text);
  }
  const bool memory = text.find("can't allocate memory") != std::string::npos ||
                      text.find("out of memory") != std::string::npos;
  if (!memory) return text.substr(0, text.find('\n'));
  const std::string size = allocation_in(text);
  const bool of_gpu = text.find("CUDA") != std::string::npos;
  return fmt::format("out of{} memory{}; {}", of_gpu ? " GPU" : "",
                     size.empty() ? "" : fmt::format(": an allocation of {} failed", size),
                     kMemoryRemedy);
}

void Conflicts::add(const std::string& where, const std::string& what, const std::string& remedy,
                    const std::string& setting) {
  const bool known = std::any_of(all_.begin(), all_.end(), [&](const Conflict& other) {
    return other.where == where && other.what == what;
  });
  if (!known) all_.push_back({where, what, remedy, setting});
}

void Conflicts::raise(const std::string& option) const {
  const auto remedy_of = [&option](const Conflict& one) {
    if (option.empty() || one.setting.empty()) return one.remedy;
    const std::string given = fmt::format("{} {}", option, one.setting);
    return one.remedy.empty() ? "give " + given : fmt::format("{} ({})", one.remedy, given);
  };
  if (all_.empty()) return;
  const Conflict& first = all_.front();
  if (all_.size() == 1) throw ConfigError(first.where, first.what, remedy_of(first));
  std::string text = fmt::format("{} conflicts in the configuration", all_.size());
  for (const Conflict& one : all_) {
    text += fmt::format("\n  {}", Error(one.where, one.what, remedy_of(one)).what());
  }
  throw ConfigError("", text);
}

}  // namespace ql
