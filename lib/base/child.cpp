#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/spawn_internal.h"

namespace ql {

namespace {

// Passes on a stop that is asked for, whichever thread the signal went to: a child that has closed
// its output may still work.
int wait_for(pid_t child) {
  constexpr int kPatience = 10;  // milliseconds until the next look at stop_signal()
  int status = 0;
  for (bool stopped = false; ::waitpid(child, &status, WNOHANG) == 0;) {
    if (!stopped && stop_signal() != 0) {
      ::kill(child, stop_signal());
      stopped = true;
    }
    ::poll(nullptr, 0, kPatience);
  }
  return internal::exit_code_of(status);
}

// Until the end of the output, or until we are asked to stop.
std::string read_output(int descriptor, const std::string& program) {
  constexpr int kPatience = 200;  // milliseconds until the next look at stop_signal()
  std::string output;
  std::array<char, 4096> block{};
  pollfd event = {descriptor, POLLIN, 0};
  while (stop_signal() == 0) {
    if (::poll(&event, 1, kPatience) <= 0) continue;
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count == 0) break;
    if (count > 0) {
      output.append(block.data(), static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      throw SystemError(program, "read its output", errno);
    }
  }
  return output;
}

}  // namespace

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

void become(const std::filesystem::path& program, char** arguments) {
  check_for_stop();
  ::execv(program.c_str(), arguments);
  throw SystemError(program.string(), "start it", errno);
}

ChildResult run_child(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw SystemError(program.string(), "open a pipe", errno);
  }
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t child = internal::spawn(
      {program.string(), arguments, internal::environment(), write_end, /*group=*/-1});
  write_end.close();
  ChildResult result;
  try {
    result.output = read_output(read_end, program.string());
  } catch (...) {
    ::kill(child, SIGTERM);
    wait_for(child);
    throw;
  }
  result.exit_code = wait_for(child);
  check_for_stop();
  return result;
}

}  // namespace ql
