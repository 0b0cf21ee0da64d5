// Makes and parses temporary names, removes leftovers, and replaces an old file or folder by the
// complete new one.

#include "base/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"

namespace ql {

std::optional<TemporaryName> parse_temporary_name(const std::string& file_name) {
  // The name is read from its end, because NAME, its first part, may have full stops.
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
  ::stat("/proc/self/ns/pid", &numbers);  // stays 0 without /proc: the host's name must suffice
  const std::string text = fmt::format("{}/{}", host, numbers.st_ino);
  return fmt::format("{:08x}", xxh64(text.data(), text.size()) & 0xFFFFFFFF);
}

std::error_code remove_tree(const fs::path& path) {
  std::error_code error, ignored;
  fs::remove_all(path, error);
  // A link's target keeps its permissions.
  if (!error || !fs::is_directory(fs::symlink_status(path, ignored))) return error;
  fs::permissions(path, fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(path, error);
  return error;
}

namespace {

// This suffix of a temporary name marks an old folder that was moved away to make room for a new
// one.
constexpr const char* kMovedAway = ".old";
constexpr mode_t kPermissions = S_IRWXU | S_IRWXG | S_IRWXO;

struct Claims {
  std::mutex mutex;
  std::set<fs::path> paths;
};

Claims& claims() {
  static Claims instance;
  return instance;
}

// A zombie does not count as alive: it has ended, and only its parent has not noticed yet.
bool is_alive(pid_t process) {
  if (kill(process, 0) != 0 && errno != EPERM) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The state follows the program's name, which is in parentheses and may contain some.
  const std::size_t name_end = std::min(text.rfind(')'), text.size());
  return text.compare(name_end, 3, ") Z") != 0;
}

// Returns the NAME of temporary names: the final name, or its beginning and a hash of it if a
// temporary name with the complete final name would exceed the limit of 255 bytes.
std::string shortened_name(const fs::path& final_path) {
  constexpr std::size_t kLongest = 200, kBeginning = 160;
  std::string name = final_path.filename().string();
  if (name.size() <= kLongest) return name;
  const std::string beginning = name.substr(0, kBeginning);
  return fmt::format("{}-{:016x}", beginning.substr(0, kBeginning - incomplete_suffix(beginning)),
                     xxh64(name.data(), name.size()));
}

void remove_leftovers(const fs::path& path) {
  const std::string name = shortened_name(path);
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const auto temporary = parse_temporary_name(entry->path().filename().string());
    if (!temporary || temporary->name != name) continue;
    // Until its successor is in place, a folder that was moved away may be the only copy.
    if (temporary->moved_away && !fs::exists(path, ignored)) continue;
    // Only a process on the same machine can find out whether the process that made the name is
    // alive.
    if (temporary->machine != this_machine()) continue;
    if (temporary->process == getpid() || is_alive(temporary->process)) continue;
    remove_tree(entry->path());
  }
}

// Returns `path` without a trailing slash. Refuses "", "/", and paths whose last part is "." or
// "..": they have no name to replace.
fs::path final_path(const fs::path& path) {
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  const fs::path name = fs::path(text).filename();
  if (name.empty() || name == "." || name == "..") {
    throw Error(path.string(), "this path does not end with a name",
                "end it with the name of a file or folder, not with '.' or '..'");
  }
  return text;
}

// Calls fsync for a file or folder by name. Ignores EINVAL: some file systems cannot sync a folder.
void sync_path(const fs::path& path, const std::string& where) {
  // A folder may allow writing, but not reading. Then it cannot be opened.
  if (::access(path.c_str(), R_OK) != 0 && errno == EACCES) return;
  const Descriptor file(path, O_RDONLY, where, "open for fsync");
  const bool synced = uninterrupted([&] { return ::fsync(file); }) == 0;
  if (!synced && errno != EINVAL) throw SystemError(where, "fsync", errno);
}

// Follows the symbolic links at `path`, so that the file at their end is replaced and the links
// stay. Refuses a link of /proc, to which /dev/stdout leads: such a link stands for an open file,
// and a rename replaces only a name, not what a process has open.
fs::path target_of_links(const fs::path& path, const std::string& advice) {
  constexpr int kMostLinks = 40;
  fs::path target = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) throw SystemError(path.string(), "write", ELOOP);
    const fs::path folder = folder_of(target);
    if (fs::canonical(folder, error).native().rfind("/proc/", 0) == 0) {
      throw Error(path.string(), "this name stands for an open file, which cannot be replaced",
                  advice);
    }
    const fs::path next = fs::read_symlink(target, error);
    if (error) throw SystemError(path.string(), "read the link", error.value());
    target = final_path(folder / next);
  }
  return target;
}

// Throws Error if a file system or a single file is mounted at `path`: rename() cannot replace it.
// Kernels before 5.8 do not report this, and then rename() itself fails.
void refuse_mount_point(const fs::path& path, const std::string& remedy) {
  struct statx status = {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_TYPE, &status) == 0 &&
      (status.stx_attributes_mask & status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
    throw Error(path.string(), "a mount point cannot be replaced", remedy);
  }
}

// Returns the path to write to. Refuses an existing path that is not a regular file: a rename over
// a device would replace the device for all users.
fs::path file_to_write(const fs::path& named, const std::string& advice) {
  const fs::path path = final_path(named);
  if (!named.has_filename()) throw SystemError(named.string(), "write", EISDIR);
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw SystemError(path.string(), "write", EISDIR);
    if (!S_ISREG(status.st_mode)) {
      throw Error(path.string(), "this is a device, pipe or socket, expected the name of a file",
                  advice);
    }
  }
  fs::path target = target_of_links(path, advice);
  refuse_mount_point(target, advice);
  return target;
}

}  // namespace

TemporaryPath::TemporaryPath(const fs::path& final_path) {
  const fs::path folder = folder_of(final_path);
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT) throw SystemError(final_path.string(), "create", errno);
    throw Error(final_path.string(),
                fmt::format("the folder {} does not exist", printable(folder.string())),
                "create it first");
  }
  if (!S_ISDIR(status.st_mode)) throw SystemError(final_path.string(), "create", ENOTDIR);
  // The temporary name may be shorter, so this error would come only with the final name.
  if (::lstat(final_path.c_str(), &status) != 0 && errno == ENAMETOOLONG) {
    throw SystemError(final_path.string(), "create", errno);
  }
  remove_leftovers(final_path);

  // The path is absolute, so that it stays valid when the program changes its working directory,
  // and without links, so that another spelling of the same name is recognized.
  fs::path claimed =
      fs::canonical(folder) /
      fmt::format(".{}.{}.{}.tmp", shortened_name(final_path), this_machine(), getpid());
  const std::lock_guard<std::mutex> lock(claims().mutex);
  if (!claims().paths.insert(claimed).second) {
    throw Error(final_path.string(), "this command is already writing to this name",
                "give each of its outputs another name");
  }
  // Process numbers start anew in a container, so a leftover may carry our own number.
  std::error_code ignored;
  remove_tree(claimed);
  if (fs::exists(final_path, ignored)) remove_tree(claimed.string() + kMovedAway);
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
    // Only a lack of memory leads here. The next run removes the file or folder.
  }
}

AtomicFile::AtomicFile(const fs::path& path, const std::string& device_advice)
    : path_(file_to_write(path, device_advice)),
      temporary_(path_),
      descriptor_(temporary_.path, O_WRONLY | O_CREAT | O_EXCL, path_.string(), "create") {
  struct stat old = {};
  // The owner must be able to append.
  if (::stat(path_.c_str(), &old) == 0) {
    ::fchmod(descriptor_, (old.st_mode & kPermissions) | S_IRUSR | S_IWUSR);
  }
}

void AtomicFile::write(const void* data, std::size_t size) {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::write after commit");
  descriptor_.write(data, size, path_.string());
  size_ += static_cast<std::int64_t>(size);
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile::commit twice");
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
    throw SystemError(path_.string(), "fsync", errno);
  }
  if (!descriptor_.close()) throw SystemError(path_.string(), "close", errno);
  if (::rename(temporary_.path.c_str(), path_.c_str()) != 0) {
    throw SystemError(path_.string(), "rename into place", errno);
  }
  temporary_.release();
  sync_path(folder_of(path_), path_.string());
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

static void sync_tree(const fs::path& folder, const std::string& where) {
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_symlink()) continue;
      if (entry.is_regular_file() || entry.is_directory()) sync_path(entry.path(), where);
    }
  } catch (const fs::filesystem_error& error) {
    throw SystemError(where, "list its files for fsync", error.code().value());
  }
  sync_path(folder, where);
}

// Returns the name of a complete copy of a folder that cannot be renamed, for as long as the folder
// itself may be incomplete.
static fs::path kept_copy(const fs::path& path) {
  return folder_of(path) / fmt::format(".{}.copy", shortened_name(path));
}

// Copies a folder to `old` and then removes it.
static void copy_away(const fs::path& path, const fs::path& old) {
  // While `path` is removed, the copy has a name that no later command removes.
  const fs::path kept = kept_copy(path);
  fs::path made = old;
  std::error_code error, ignored;
  try {
    fs::copy(path, old, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
    if (!error) {
      sync_tree(old, path.string());
      fs::rename(old, kept, error);
    }
    if (error) throw SystemError(path.string(), "copy the old folder", error.value());
    made = kept;  // a folder that had this name before is another command's
    sync_path(folder_of(kept), path.string());
  } catch (...) {
    fs::remove_all(made, ignored);
    throw;
  }
  if (!(error = remove_tree(path))) fs::rename(kept, old, error);
  if (error) {
    throw SystemError(path.string(),
                      fmt::format("remove it, after copying it to {}", kept.string()),
                      error.value());
  }
}

void internal::replace_in_two_steps(const fs::path& fresh, const fs::path& path) {
  const fs::path old = fresh.string() + kMovedAway;
  if (::rename(path.c_str(), old.c_str()) != 0) {
    if (errno != EXDEV) throw SystemError(path.string(), "move the old folder away", errno);
    copy_away(path, old);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int failed = errno;
    ::rename(old.c_str(), path.c_str());
    throw SystemError(path.string(), "rename into place", failed);
  }
  ::rename(old.c_str(), fresh.c_str());
}

// Gives the folder a free name: rename() replaces nothing except an empty folder.
static void rename_to_free_name(const fs::path& folder, const fs::path& name) {
  if (::rename(folder.c_str(), name.c_str()) == 0) return;
  const int failed = errno;
  if (failed == EEXIST || failed == ENOTEMPTY || failed == ENOTDIR) {
    throw Error(name.string(),
                "another program created this file or folder meanwhile, and it is not replaced",
                "choose another name, or remove it");
  }
  throw SystemError(name.string(), "rename into place", failed);
}

// Swaps two folders, in one step where the file system can do that. EXDEV comes from OverlayFS,
// which cannot rename a folder of a lower layer, such as one that a container's image brings.
static void swap_folders(const fs::path& fresh, const fs::path& path) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP && errno != EXDEV) {
    throw SystemError(path.string(), "rename into place", errno);
  }
  internal::replace_in_two_steps(fresh, path);
}

static fs::path folder_to_write(const fs::path& named) {
  fs::path path = final_path(named);
  refuse_mount_point(path, fmt::format("give a name in it, such as {}", (path / "new").string()));
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw SystemError(path.string(), "write a folder here while a file has this name", ENOTDIR);
  }
  if (const fs::path copy = kept_copy(path); fs::exists(copy, error)) {
    throw Error(
        copy.string(),
        fmt::format("a command that could not replace {} left this copy of it", path.string()),
        fmt::format("rename it to {}, or remove it", path.string()));
  }
  return path;
}

AtomicFolder::AtomicFolder(const fs::path& path) : path_(folder_to_write(path)), temporary_(path_) {
  if (::mkdir(temporary_.path.c_str(), 0777) != 0) {
    throw SystemError(path_.string(), "create", errno);
  }
  struct stat old = {}, fresh = {};
  // The owner must be able to fill the folder, and a parent folder may have passed on its setgid
  // bit.
  if (::stat(path_.c_str(), &old) == 0 && ::stat(temporary_.path.c_str(), &fresh) == 0) {
    ::chmod(temporary_.path.c_str(),
            (old.st_mode & kPermissions) | S_IRWXU | (fresh.st_mode & S_ISGID));
  }
}

void AtomicFolder::sync() {
  if (synced_) return;
  sync_tree(temporary_.path, path_.string());
  synced_ = true;
}

void AtomicFolder::commit(bool replace) {
  if (committed_) throw std::logic_error("AtomicFolder::commit twice");
  sync();
  struct stat status = {};
  const bool replaced = replace && ::lstat(path_.c_str(), &status) == 0;
  if (replaced) {
    swap_folders(temporary_.path, path_);
  } else {
    rename_to_free_name(temporary_.path, path_);
  }
  // A replaced old folder has the temporary name now. That folder is removed only when the new
  // folder is safely on the disk.
  try {
    sync_path(folder_of(path_), path_.string());
  } catch (const SystemError&) {
    take_back(replaced);
    throw;
  }
  committed_ = true;
  if (const std::error_code error = remove_tree(temporary_.path)) {
    log_warning("{}: the old folder cannot be removed and remains as {} ({})", path_.string(),
                temporary_.path.string(), error.message());
  }
  temporary_.release();
}

void AtomicFolder::take_back(bool replaced) {
  // While temporary_.path is empty, release() removes no folder, so an error here loses none.
  const fs::path fresh = std::exchange(temporary_.path, {});
  if (replaced) {
    swap_folders(fresh, path_);
  } else if (::rename(path_.c_str(), fresh.c_str()) != 0) {
    throw SystemError(path_.string(), "remove this folder, which may be incomplete", errno);
  }
  temporary_.path = fresh;
}

}  // namespace ql
