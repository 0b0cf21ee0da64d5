// Another program, run and listened to.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ql {

class InputFile;

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

// Runs `program` likewise, with `input` as its standard input, and calls read() with its output as
// it comes. A stop that we are asked for is passed on to the program, once, and read() gets what it
// still writes. Returns when the program has ended with exit code 0. Throws AlreadyReported when it
// has failed, and Error when a signal ended it; else what read() throws, and then the program's
// output is closed.
void run_filter(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                std::string_view input, const std::function<void(InputFile& output)>& read);

}  // namespace ql
