#include "base/temporary_name.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_internal.h"
#include "base/hash.h"
#include "base/number.h"

namespace ql {

std::optional<TemporaryName> parse_temporary_name(const std::string& file_name) {
  // The name is read from its end, because its first part may have full stops.
  std::string_view rest = file_name;
  const auto last_part = [&rest] {
    const std::size_t stop = std::min(rest.rfind('.'), rest.size());
    const std::string_view part = rest.substr(std::min(stop + 1, rest.size()));
    rest = rest.substr(0, stop);
    return part;
  };
  std::string_view end = last_part();
  const bool moved_away = end == "old";
  if (moved_away) end = last_part();
  const std::string_view digits = last_part(), machine = last_part();
  const bool is_ours = end == "tmp" && machine.size() == 8 && rest.size() > 1 && rest[0] == '.' &&
                       machine.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
                       digits.find_first_not_of("0123456789") == std::string_view::npos;
  const std::int64_t process = is_ours ? parse_integer(digits).value_or(0) : 0;
  if (process < 1 || process > INT32_MAX) return std::nullopt;
  return TemporaryName{std::string(rest.substr(1)), std::string(machine),
                       static_cast<pid_t>(process), moved_away};
}

std::string this_machine() {
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, HOST_NAME_MAX);
  struct stat numbers = {};
  ::stat("/proc/self/ns/pid", &numbers);  // 0 without /proc: the host has to do
  const std::string text = fmt::format("{}/{}", host, numbers.st_ino);
  return fmt::format("{:08x}", xxh64(text.data(), text.size()) & 0xFFFFFFFF);
}

namespace {

struct Claims {
  std::mutex mutex;
  std::set<fs::path> paths;
};

Claims& claims() {
  static Claims instance;
  return instance;
}

bool is_alive(pid_t process) { return kill(process, 0) == 0 || errno == EPERM; }

void remove_leftovers(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code error, ignored;
  for (fs::directory_iterator entry(internal::folder_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const auto temporary = parse_temporary_name(entry->path().filename().string());
    if (!temporary || temporary->name != name) continue;
    // A folder that was moved away may be all there is, until its successor is in place.
    if (temporary->moved_away && !fs::exists(path, ignored)) continue;
    // Nobody here can tell whether a process of another machine lives.
    if (temporary->machine != this_machine()) continue;
    if (temporary->process == getpid() || is_alive(temporary->process)) continue;
    fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

namespace internal {

fs::path final_path(const fs::path& path) {
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  const fs::path name = fs::path(text).filename();
  if (name.empty() || name == "." || name == "..") {
    throw Error(path.string(), "this is not a name that can be written or replaced",
                "give the name of a file or folder");
  }
  return text;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace internal

TemporaryPath::TemporaryPath(const fs::path& final_path) {
  const fs::path folder = internal::folder_of(final_path);
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT) throw SystemError(final_path.string(), "create", errno);
    throw Error(final_path.string(), fmt::format("the folder {} does not exist", folder.string()),
                "create it first");
  }
  if (!S_ISDIR(status.st_mode)) throw SystemError(final_path.string(), "create", ENOTDIR);
  remove_leftovers(final_path);

  // Absolute, so that it is found again when the program changes its folder.
  fs::path claimed =
      fs::absolute(folder) /
      fmt::format(".{}.{}.{}.tmp", final_path.filename().string(), this_machine(), getpid());
  const std::lock_guard<std::mutex> lock(claims().mutex);
  if (!claims().paths.insert(claimed).second) {
    throw Error(final_path.string(), "this process is already writing it");
  }
  // A leftover may carry our own number where process numbers start anew (containers).
  std::error_code ignored;
  fs::remove_all(claimed, ignored);
  if (fs::exists(final_path, ignored)) {
    fs::remove_all(claimed.string() + internal::kMovedAway, ignored);
  }
  path = std::move(claimed);
}

void TemporaryPath::release() noexcept {
  if (path.empty()) return;
  std::error_code ignored;
  try {
    fs::remove_all(path, ignored);
    const std::lock_guard<std::mutex> lock(claims().mutex);
    claims().paths.erase(path);
    path.clear();
  } catch (...) {
    // Only memory can run out here; the next run removes what is left.
  }
}

}  // namespace ql
