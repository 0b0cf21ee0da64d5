// The names under which AtomicFile and AtomicFolder (base/file.h) write: ".NAME.PID.tmp" beside
// NAME; and ".NAME.PID.tmp.old" for an old folder that makes room for its successor where the file
// system cannot exchange names.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace ql {

struct TemporaryName {
  std::string name;         // the final one
  pid_t process = 0;        // that made it
  bool moved_away = false;  // the second kind
};

// Absent for a file name of another form.
std::optional<TemporaryName> parse_temporary_name(const std::string& file_name);

// Where the folder is that has the name `path`: there; or, when a process was killed right after it
// had moved it away, where that is. Empty when it is nowhere.
std::filesystem::path find_replaced_folder(const std::filesystem::path& path);

}  // namespace ql
