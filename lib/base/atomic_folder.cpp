#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/file_internal.h"

namespace ql {

namespace internal {

void replace_in_two_steps(const fs::path& fresh, const fs::path& path) {
  const fs::path old = fresh.string() + kMovedAway;
  if (::rename(path.c_str(), old.c_str()) != 0) {
    throw SystemError(path.string(), "move the old folder away", errno);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int failed = errno;
    ::rename(old.c_str(), path.c_str());
    throw SystemError(path.string(), "rename into place", failed);
  }
  ::rename(old.c_str(), fresh.c_str());
}

}  // namespace internal

namespace {

void sync_tree(const fs::path& folder, const std::string& where) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_regular_file() || entry.is_directory()) internal::sync_path(entry.path(), where);
  }
  internal::sync_path(folder, where);
}

// Gives the folder a name that is free: rename() takes a name from an empty folder at most.
void rename_to_free_name(const fs::path& folder, const fs::path& name) {
  if (::rename(folder.c_str(), name.c_str()) == 0) return;
  const int failed = errno;
  if (failed == EEXIST || failed == ENOTEMPTY || failed == ENOTDIR) {
    throw Error(name.string(), "exists by now, and is not replaced",
                "choose another name, or remove it yourself");
  }
  throw SystemError(name.string(), "rename into place", failed);
}

// Swaps two folders in one step; false where the file system cannot.
bool exchange(const fs::path& a, const fs::path& b, const std::string& where) {
#ifdef RENAME_EXCHANGE
  const int result = ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
#else
  // The C library has neither the call nor its flags.
  constexpr unsigned kExchange = 1U << 1U;
  const auto result = ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchange);
#endif
  if (result == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  throw SystemError(where, "rename into place", errno);
}

void swap_folders(const fs::path& fresh, const fs::path& path) {
  if (!exchange(fresh, path, path.string())) internal::replace_in_two_steps(fresh, path);
}

fs::path folder_to_write(const fs::path& named) {
  fs::path path = internal::final_path(named);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw SystemError(path.string(), "replace by a folder", ENOTDIR);
  }
  return path;
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& path) : path_(folder_to_write(path)), temporary_(path_) {
  if (::mkdir(temporary_.path.c_str(), 0777) != 0) {
    throw SystemError(path_.string(), "create", errno);
  }
}

void AtomicFolder::sync() {
  if (synced_) return;
  try {
    sync_tree(temporary_.path, path_.string());
  } catch (const fs::filesystem_error& error) {
    throw SystemError(path_.string(), "list for fsync", error.code().value());
  }
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
  // The old folder has the temporary name now; it goes when the new one is sure to stay.
  try {
    internal::sync_path(internal::folder_of(path_), path_.string());
  } catch (const SystemError&) {
    take_back(replaced);
    throw;
  }
  committed_ = true;
  temporary_.release();
}

void AtomicFolder::take_back(bool replaced) {
  // Should this fail, too, neither folder is removed.
  const fs::path fresh = std::exchange(temporary_.path, {});
  if (replaced) {
    swap_folders(fresh, path_);
  } else if (::rename(path_.c_str(), fresh.c_str()) != 0) {
    throw SystemError(path_.string(), "rename back", errno);
  }
  temporary_.path = fresh;
}

}  // namespace ql
