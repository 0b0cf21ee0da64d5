#include "base/event_file.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/event_record.h"
#include "base/file.h"
#include "base/number.h"

namespace ql {

namespace {

constexpr std::int64_t kSecond = 1'000'000;  // in microseconds

// Returns the microseconds since 1970 that a name of ours holds. Earlier versions wrote seconds in
// 10 digits. Such a name sorts before ours of the same second.
std::optional<std::int64_t> time_in(const std::string& name) {
  char digits[17] = {};
  int end = 0;
  std::sscanf(name.c_str(), "events.out.tfevents.%16[0-9].qltrain%n", digits, &end);
  const std::size_t count = std::strlen(digits);
  if (end != static_cast<int>(name.size()) || (count != 10 && count != 16)) return std::nullopt;
  return *parse_integer(digits) * (count == 10 ? kSecond : 1);
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
  fs::path path = folder / fmt::format("events.out.tfevents.{:016}.qltrain", time);
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
