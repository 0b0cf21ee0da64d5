#include "base/temporary_name.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file_internal.h"
#include "base/hash.h"
#include "base/number.h"

namespace ql {

namespace {

// Takes `end` off the back of `text`; false when it is not there.
bool strip_end(std::string_view& text, std::string_view end) {
  if (text.size() < end.size() || text.substr(text.size() - end.size()) != end) return false;
  text.remove_suffix(end.size());
  return true;
}

// Takes what is behind the last full stop, and that one, off the back of `text`.
std::string_view strip_last_part(std::string_view& text) {
  const std::size_t stop = text.rfind('.');
  if (stop == std::string_view::npos) return {};
  const std::string_view part = text.substr(stop + 1);
  text.remove_suffix(part.size() + 1);
  return part;
}

bool is_machine(std::string_view text) {
  return text.size() == 8 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// 0 for what is no process number.
pid_t process_number(std::string_view digits) {
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return 0;
  const auto number = parse_integer(digits);
  return number && *number > 0 && *number <= INT32_MAX ? static_cast<pid_t>(*number) : 0;
}

}  // namespace

std::optional<TemporaryName> parse_temporary_name(const std::string& file_name) {
  TemporaryName parsed;
  std::string_view rest = file_name;
  parsed.moved_away = strip_end(rest, internal::kMovedAway);
  if (!strip_end(rest, ".tmp")) return std::nullopt;
  parsed.process = process_number(strip_last_part(rest));
  parsed.machine = strip_last_part(rest);
  if (parsed.process == 0 || !is_machine(parsed.machine)) return std::nullopt;
  if (rest.size() < 2 || rest.front() != '.') return std::nullopt;
  parsed.name = rest.substr(1);
  return parsed;
}

std::string this_machine() {
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, HOST_NAME_MAX);
  struct stat numbers = {};
  ::stat("/proc/self/ns/pid", &numbers);  // 0 without /proc: the host has to do
  const std::string text = fmt::format("{}/{}", host, numbers.st_ino);
  return fmt::format("{:08x}", xxh64(text.data(), text.size()) & 0xFFFFFFFF);
}

namespace internal {

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
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end;
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

fs::path claim_temporary(const fs::path& path) {
  const fs::path folder = folder_of(path);
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT) throw SystemError(path.string(), "create", errno);
    throw Error(path.string(), fmt::format("the folder {} does not exist", folder.string()),
                "create it first");
  }
  if (!S_ISDIR(status.st_mode)) throw SystemError(path.string(), "create", ENOTDIR);
  remove_leftovers(path);

  // Absolute, so that it is found again when the program changes its folder.
  fs::path temporary = fs::absolute(folder) / fmt::format(".{}.{}.{}.tmp", path.filename().string(),
                                                          this_machine(), getpid());
  const std::lock_guard<std::mutex> lock(claims().mutex);
  if (!claims().paths.insert(temporary).second) {
    throw Error(path.string(), "this process is already writing it");
  }
  // A leftover may carry our own number where process numbers start anew (containers).
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  if (fs::exists(path, ignored)) fs::remove_all(temporary.string() + kMovedAway, ignored);
  return temporary;
}

void release_temporary(const fs::path& temporary) noexcept {
  std::error_code ignored;
  try {
    fs::remove_all(temporary, ignored);
    const std::lock_guard<std::mutex> lock(claims().mutex);
    claims().paths.erase(temporary);
  } catch (...) {
    // Only memory can run out here; the next run removes what is left.
  }
}

}  // namespace internal

}  // namespace ql
