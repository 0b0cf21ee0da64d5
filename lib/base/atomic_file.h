// Writes files and folders under temporary names, and gives them their final names when they are
// complete.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/file.h"

namespace ql {

// AtomicFile and AtomicFolder write under temporary names: ".NAME.MACHINE.PID.tmp" in the same
// folder as NAME. Where the file system cannot exchange two names, the old folder is renamed to
// ".NAME.MACHINE.PID.tmp.old" before the new folder takes NAME. If NAME has more than 200 bytes,
// its beginning and a hash stand for it, so that temporary names have at most 255 bytes.
struct TemporaryName {
  std::string name;         // the final name, NAME, or what stands for it
  std::string machine;      // 8 hexadecimal digits, see this_machine()
  pid_t process = 0;        // PID, on `machine`, of the process that made the file or folder
  bool moved_away = false;  // true for a name with .old
};

// Returns nothing unless `file_name` is a temporary name.
std::optional<TemporaryName> parse_temporary_name(const std::string& file_name);

// Returns the MACHINE of this process's temporary names: a hash of the host's name and of the
// namespace of process numbers. On another host or in another container, the same process number
// means another process.
std::string this_machine();

// Claims the temporary name that a file or folder has until it is complete.
struct TemporaryPath {
  // Removes leftovers for the same `final_path`: those of ended processes on this machine, and
  // those of an earlier process that had our process number. An old folder that was moved away
  // stays while `final_path` does not exist. Throws Error when the folder of `final_path` does not
  // exist, or when this process is already writing `final_path`.
  explicit TemporaryPath(const fs::path& final_path);
  ~TemporaryPath() { release(); }
  TemporaryPath(TemporaryPath&&) = delete;
  // Removes the file or folder if it still has the temporary name. Afterwards this process may
  // claim the name again.
  void release() noexcept;

  fs::path path;  // empty after release()
};

// Removes a file or folder, also a folder in which its owner may not write. Returns the error of
// the last attempt, if there is one.
std::error_code remove_tree(const fs::path& path);

// Writes a file under a temporary name in the folder of its final name. commit() calls fsync for
// the file, renames it, and calls fsync for the folder. Without commit() the destructor removes the
// temporary file, so the final name never shows a half-written file. Symbolic links are followed. A
// file that is replaced hands its permissions on, and so does a folder (AtomicFolder), but not the
// files in it. The owner may always read and write. Throws SystemError with the final path, and
// Error for a path that cannot be replaced. For a device, a pipe, a socket or an open file
// (/dev/stdout) the Error advises `device_advice`.
class AtomicFile {
 public:
  explicit AtomicFile(const fs::path& path,
                      const std::string& device_advice = "choose another name");
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  std::int64_t size() const { return size_; }
  void commit();

 private:
  fs::path path_;
  TemporaryPath temporary_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

void write_file_atomically(const fs::path& path, std::string_view text);

// Makes a folder that is complete when it appears. The caller fills temporary(). Then commit()
// calls fsync for every file in that folder and gives the folder its final name. Without commit()
// the destructor removes temporary().
class AtomicFolder {
 public:
  explicit AtomicFolder(const fs::path& path);
  const fs::path& temporary() const { return temporary_.path; }
  // Runs commit()'s fsyncs early (they may take minutes), so that a caller can check the final name
  // again just before committing. No file may be written afterwards.
  void sync();
  // Replaces an existing folder of the final name in one step (two where the file system cannot
  // exchange names) and then removes the old folder, or warns if it cannot. A folder of a lower
  // layer of OverlayFS, which cannot be renamed, is copied first; if it then cannot be removed, the
  // copy stays as .NAME.copy, and the constructor refuses this name until the user decides. Without
  // `replace`, commit() replaces only an empty folder. It throws Error for any other file or folder
  // of this name, even if that was created a moment ago. After any error the old folder or its copy
  // still exists.
  void commit(bool replace = true);

 private:
  void take_back(bool replaced);

  fs::path path_;
  TemporaryPath temporary_;
  bool synced_ = false, committed_ = false;
};

}  // namespace ql

namespace ql::internal {

// Puts the folder `fresh` in the place of `path` by separate renames, for file systems that cannot
// exchange names. For an instant `path` does not exist, but it is never incomplete. Afterwards the
// old folder has the name `fresh`. Outside atomic_file.cpp only tests call this function.
void replace_in_two_steps(const fs::path& fresh, const fs::path& path);

}  // namespace ql::internal
