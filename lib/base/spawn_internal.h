// Starting another program. Used by child.cpp and launch.cpp only.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ql::internal {

struct Spawn {
  std::string program;                   // a path: PATH is not searched
  std::vector<std::string> arguments;    // without the program's name
  std::vector<std::string> environment;  // NAME=VALUE; all of it
  int input = -1;                        // becomes its standard input; -1: an empty one
  int output = -1;                       // becomes its standard output; -1: ours
  pid_t group = -1;                      // process group to join; 0: an own one, -1: ours
};

// Starts it. Its standard error is ours. Throws SystemError.
pid_t spawn(const Spawn& request);

// Our environment.
std::vector<std::string> environment();

// The exit code that a shell would see: 128 + n when signal n ended the process.
int exit_code_of(int wait_status);

}  // namespace ql::internal
