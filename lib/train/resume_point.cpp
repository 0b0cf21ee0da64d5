#include "train/resume_point.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "train/checkpoint.h"
#include "train/retention.h"

namespace ql::train {
namespace {

namespace fs = std::filesystem;

// Returns ", 20 steps before it" if the steps of both are known and `whole` has fewer.
std::string distance(const fs::path& damaged, const fs::path& whole) {
  const auto lost = step_of(damaged), left = step_of(whole);
  if (!lost || !left || *lost <= *left) return "";
  return fmt::format(", {} step{} before it", with_thousands(*lost - *left),
                     *lost - *left == 1 ? "" : "s");
}

}  // namespace

fs::path find_resume_point(const fs::path& run) {
  std::vector<std::pair<fs::path, std::string>> passed;
  for (const fs::path& checkpoint : newest_checkpoints(run)) {
    std::string found = damage(checkpoint);
    if (!found.empty()) {
      passed.emplace_back(checkpoint, std::move(found));
      continue;
    }
    for (const auto& [damaged, reason] : passed) {
      log_warning("{}; going on from {}{}", reason, checkpoint.string(),
                  distance(damaged, checkpoint));
    }
    return checkpoint;
  }
  if (!passed.empty()) {
    throw FormatError("", passed.front().second,
                      "no other checkpoint of the training is whole: restore one from a copy, or "
                      "begin anew with --force");
  }
  return {};
}

}  // namespace ql::train
