#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
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

// The process number in ".NAME.PID.tmp", or 0 when `file` is no temporary of `name`.
pid_t owner(const std::string& file, const std::string& name) {
  const std::string front = "." + name + ".";
  const std::string back = ".tmp";
  if (file.size() <= front.size() + back.size()) return 0;
  if (file.compare(0, front.size(), front) != 0) return 0;
  if (file.compare(file.size() - back.size(), back.size(), back) != 0) return 0;
  const std::string digits = file.substr(front.size(), file.size() - front.size() - back.size());
  if (digits.find_first_not_of("0123456789") != std::string::npos) return 0;
  const auto number = parse_integer(digits);
  return number && *number > 0 && *number <= INT32_MAX ? static_cast<pid_t>(*number) : 0;
}

bool is_alive(pid_t process) { return kill(process, 0) == 0 || errno == EPERM; }

void remove_leftovers(const fs::path& folder, const std::string& name) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t process = owner(entry->path().filename().string(), name);
    if (process == 0 || process == getpid() || is_alive(process)) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

fs::path final_path(const fs::path& path) {
  fs::path clean = path.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  const fs::path name = clean.filename();
  if (name.empty() || name == "." || name == "..") {
    throw Error(path.string(), "this is not a name that can be written or replaced",
                "give the name of a file or folder");
  }
  return clean;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path claim_temporary(const fs::path& path) {
  const fs::path folder = folder_of(path);
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    throw Error(path.string(), fmt::format("the folder {} does not exist", folder.string()),
                "create it first");
  }
  if (!fs::is_directory(status)) throw SystemError(path.string(), "create", ENOTDIR);
  const std::string name = path.filename().string();
  remove_leftovers(folder, name);

  fs::path temporary = folder / fmt::format(".{}.{}.tmp", name, getpid());
  const std::lock_guard<std::mutex> lock(claims().mutex);
  if (!claims().paths.insert(fs::absolute(temporary)).second) {
    throw Error(path.string(), "this process is already writing it");
  }
  // Where process numbers start anew (containers) a leftover may carry our own.
  fs::remove_all(temporary, error);
  return temporary;
}

void release_temporary(const fs::path& temporary) noexcept {
  std::error_code ignored;
  try {
    fs::remove_all(temporary, ignored);
    const std::lock_guard<std::mutex> lock(claims().mutex);
    claims().paths.erase(fs::absolute(temporary));
  } catch (...) {
    // Only memory can run out here; the next run removes what is left.
  }
}

}  // namespace ql::internal
