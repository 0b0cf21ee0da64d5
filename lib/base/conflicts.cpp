#include "base/conflicts.h"

#include <algorithm>

#include "base/error.h"

namespace ql {

void Conflicts::add(const std::string& where, const std::string& what, const std::string& cure,
                    const std::string& mend) {
  const bool known = std::any_of(all_.begin(), all_.end(), [&](const Conflict& other) {
    return other.where == where && other.what == what;
  });
  if (!known) all_.push_back({where, what, cure, mend});
}

void Conflicts::raise(const std::string& option) const {
  const auto cure_of = [&option](const Conflict& one) {
    if (option.empty() || one.mend.empty()) return one.cure;
    const std::string given = fmt::format("{} {}", option, one.mend);
    return one.cure.empty() ? "give " + given : fmt::format("{} ({})", one.cure, given);
  };
  if (all_.empty()) return;
  const Conflict& first = all_.front();
  if (all_.size() == 1) throw ConfigError(first.where, first.what, cure_of(first));
  std::string text = fmt::format("{} conflicts in the configuration", all_.size());
  for (const Conflict& one : all_) {
    text += fmt::format("\n  {}", Error(one.where, one.what, cure_of(one)).what());
  }
  throw ConfigError("", text);
}

}  // namespace ql
