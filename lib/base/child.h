// Another program, run and listened to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ql {

// The folder of the running program's file, links resolved.
std::filesystem::path program_folder();

// Becomes `program` (a path: PATH is not searched) with the arguments, the last one null, and our
// environment. Returns only by throwing: SystemError, or Interrupted when we are asked to stop.
[[noreturn]] void become(const std::filesystem::path& program, char** arguments);

struct ChildResult {
  int exit_code = 0;   // 128 + n when signal n ended it
  std::string output;  // what it wrote to its standard output
};

// Runs `program` (a path: PATH is not searched) with these arguments, without a shell and with our
// environment, and waits for its end. Its standard input is empty, its standard error is ours.
// Throws SystemError when it cannot be started. When we are asked to stop, it is, too: Interrupted.
ChildResult run_child(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments);

}  // namespace ql
