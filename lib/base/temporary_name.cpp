#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file_internal.h"
#include "base/number.h"

namespace ql::internal {

namespace {

struct Claims {
  std::mutex mutex;
  std::set<fs::path> paths;
};

Claims& claims() {
  static Claims instance;
  return instance;
}

// Takes `end` off the back of `text`; false when it is not there.
bool strip_end(std::string_view& text, std::string_view end) {
  if (text.size() < end.size() || text.substr(text.size() - end.size()) != end) return false;
  text.remove_suffix(end.size());
  return true;
}

// The process number in ".NAME.PID.tmp" without ".NAME." and ".tmp", or 0.
pid_t owner(std::string_view digits) {
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return 0;
  const auto number = parse_integer(digits);
  return number && *number > 0 && *number <= INT32_MAX ? static_cast<pid_t>(*number) : 0;
}

bool is_alive(pid_t process) { return kill(process, 0) == 0 || errno == EPERM; }

void remove_leftovers(const fs::path& path) {
  const std::string front = "." + path.filename().string() + ".";
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.rfind(front, 0) != 0) continue;
    std::string_view rest = std::string_view(file).substr(front.size());
    // What was moved away may be all there is, until its successor is in place.
    std::error_code ignored;
    if (strip_end(rest, kMovedAway) && !fs::exists(path, ignored)) continue;
    if (!strip_end(rest, ".tmp")) continue;
    const pid_t process = owner(rest);
    if (process == 0 || process == getpid() || is_alive(process)) continue;
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
  fs::path temporary =
      fs::absolute(folder) / fmt::format(".{}.{}.tmp", path.filename().string(), getpid());
  const std::lock_guard<std::mutex> lock(claims().mutex);
  if (!claims().paths.insert(temporary).second) {
    throw Error(path.string(), "this process is already writing it");
  }
  // Where process numbers start anew (containers) a leftover may carry our own.
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
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

}  // namespace ql::internal
