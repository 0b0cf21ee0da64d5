// The names under which AtomicFile and AtomicFolder (base/file.h) write: ".NAME.MACHINE.PID.tmp"
// beside NAME; and ".NAME.MACHINE.PID.tmp.old" for an old folder that makes room for its successor
// where the file system cannot exchange names.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace ql {

struct TemporaryName {
  std::string name;         // the final one
  std::string machine;      // 8 hexadecimal digits
  pid_t process = 0;        // that made it, on that machine
  bool moved_away = false;  // the second kind
};

// Absent for a file name of another form.
std::optional<TemporaryName> parse_temporary_name(const std::string& file_name);

// MACHINE of this process: of the host's name and the process numbers' namespace, because one
// number means other processes on another host, or in another container.
std::string this_machine();

}  // namespace ql
