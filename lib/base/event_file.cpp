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

constexpr std::int64_t kSecond = 1'000'000;  // in microseconds
constexpr std::size_t kDigits = 16;
// Earlier versions wrote seconds in 10 digits. Such a name sorts before ours of the same second.
constexpr std::size_t kDigitsOfSeconds = 10;

// The microseconds since 1970 in a name of ours.
std::optional<std::int64_t> time_in(const std::string& name) {
  if (name.size() <= kFront.size() + kBack.size() || name.compare(0, kFront.size(), kFront) != 0 ||
      name.compare(name.size() - kBack.size(), kBack.size(), kBack) != 0) {
    return std::nullopt;
  }
  const std::string digits = name.substr(kFront.size(), name.size() - kFront.size() - kBack.size());
  if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  if (digits.size() == kDigits) return parse_integer(digits);
  if (digits.size() == kDigitsOfSeconds) return *parse_integer(digits) * kSecond;
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (time_in(entry->path().filename().string())) files.push_back(entry->path());
  }
  if (error) throw SystemError(folder.string(), "list", error.value());
  std::sort(files.begin(), files.end());
  return files;
}

fs::path start_event_file(const fs::path& folder, double now, std::string_view events) {
  const std::vector<fs::path> before = event_files(folder);
  auto time = std::max<std::int64_t>(0, static_cast<std::int64_t>(now * kSecond));
  for (const fs::path& file : before) time = std::max(time, *time_in(file.filename().string()) + 1);
  fs::path path = folder / fmt::format("{}{:0{}}{}", kFront, time, kDigits, kBack);
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
