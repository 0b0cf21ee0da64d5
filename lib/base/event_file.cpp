#include "base/event_file.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/event_record.h"
#include "base/file.h"
#include "base/number.h"

namespace ql {

namespace {

constexpr std::string_view kFront = "events.out.tfevents.";
constexpr std::string_view kBack = ".qltrain";

// The seconds in a name of ours.
std::optional<std::int64_t> seconds_in(const std::string& name) {
  if (name.size() <= kFront.size() + kBack.size() || name.compare(0, kFront.size(), kFront) != 0 ||
      name.compare(name.size() - kBack.size(), kBack.size(), kBack) != 0) {
    return std::nullopt;
  }
  const std::string digits = name.substr(kFront.size(), name.size() - kFront.size() - kBack.size());
  // More digits than any date has could overflow below.
  if (digits.size() > 12 || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return parse_integer(digits);
}

}  // namespace

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (seconds_in(entry->path().filename().string())) files.push_back(entry->path());
  }
  if (error) throw SystemError(folder.string(), "list", error.value());
  std::sort(files.begin(), files.end());
  return files;
}

fs::path start_event_file(const fs::path& folder, double now, std::string_view events) {
  const std::vector<fs::path> before = event_files(folder);
  auto seconds = std::max<std::int64_t>(0, static_cast<std::int64_t>(now));
  for (const fs::path& file : before) {
    seconds = std::max(seconds, *seconds_in(file.filename().string()) + 1);
  }
  fs::path path = folder / fmt::format("{}{:010}{}", kFront, seconds, kBack);
  // Under a name that no loader looks at: they would take a temporary file for one more.
  const fs::path fresh = folder / "events.new";
  write_file_atomically(fresh, event_file_start(now) + std::string(events));
  std::error_code error;
  fs::rename(fresh, path, error);
  if (error) throw SystemError(path.string(), "rename into place", error.value());
  for (const fs::path& file : before) {
    fs::remove(file, error);
    if (error) throw SystemError(file.string(), "remove", error.value());
  }
  return path;
}

}  // namespace ql
