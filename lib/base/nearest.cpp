#include "base/nearest.h"

#include <algorithm>
#include <limits>

namespace ql {

namespace {

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> before_previous(width), previous(width), current(width);
  for (std::size_t j = 0; j < width; ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      const std::size_t changed = a[i - 1] == b[j - 1] ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
      }
    }
    before_previous.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

}  // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t shorter = std::min(typed.size(), candidate.size());
    const std::size_t longer = std::max(typed.size(), candidate.size());
    // The lengths alone may tell that too much would have to change, however long `typed` is.
    if ((longer - shorter) * 3 > longer) continue;
    const std::size_t distance = edit_distance(typed, candidate);
    if (distance * 3 <= longer && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() || typed.size() < 2) return best;
  const auto longer = std::find_if(
      candidates.begin(), candidates.end(),
      [typed](const std::string& candidate) { return candidate.rfind(typed, 0) == 0; });
  return longer != candidates.end() ? *longer : "";
}

}  // namespace ql
