#include "base/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/spawn_internal.h"

namespace ql {

namespace {

// Returns the status of a child that has ended, and nothing while it runs, which only WNOHANG lets
// happen. Where SIGCHLD is ignored, the system forgets how a child has ended: SystemError.
std::optional<int> status_of(pid_t child, int options, const std::filesystem::path& program) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(child, &status, options);
  } while (ended < 0 && errno == EINTR);
  if (ended < 0) throw SystemError(program.string(), "learn how it ended", errno);
  return ended == 0 ? std::nullopt : std::optional(status);
}

// Passes on a stop that is asked for, whichever thread the signal went to: a child that has closed
// its output may still work.
int wait_for(pid_t child, const std::filesystem::path& program) {
  constexpr int kPatience = 10;  // milliseconds until the next look at stop_signal()
  for (bool stopped = false;;) {
    if (const auto status = status_of(child, WNOHANG, program)) {
      return internal::exit_code_of(*status);
    }
    if (!stopped && stop_signal() != 0) {
      ::kill(child, stop_signal());
      stopped = true;
    }
    ::poll(nullptr, 0, kPatience);
  }
}

std::array<int, 2> open_pipe(const std::filesystem::path& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw SystemError(program.string(), "open a pipe", errno);
  }
  return ends;
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
  const HeldStopSignals until_it_has_handlers;
  check_for_stop();
  ::execv(program.c_str(), arguments);
  throw SystemError(program.string(), "start it", errno);
}

ChildResult run_child(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments) {
  const std::array<int, 2> ends = open_pipe(program);
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t child = internal::spawn({program.string(), arguments, internal::environment(),
                                       /*input=*/-1, write_end, /*group=*/-1});
  write_end.close();
  ChildResult result;
  try {
    result.output = read_output(read_end, program.string());
  } catch (...) {
    ::kill(child, SIGTERM);
    wait_for(child, program);
    throw;
  }
  result.exit_code = wait_for(child, program);
  check_for_stop();
  return result;
}

void run_filter(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                std::string_view input, const std::function<void(InputFile& output)>& read) {
  const Descriptor memory(::memfd_create("input", MFD_CLOEXEC));
  if (memory < 0) throw SystemError(program.string(), "make its input", errno);
  memory.write(input.data(), input.size(), program.string());
  ::lseek(memory, 0, SEEK_SET);
  const std::array<int, 2> ends = open_pipe(program);
  Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  // A terminal's interrupt reaches our process group. The child gets it from us, and only once: a
  // second one would end it at once.
  const pid_t child = internal::spawn(
      {program.string(), arguments, internal::environment(), memory, write_end, /*group=*/0});
  write_end.close();
  std::exception_ptr problem;
  try {
    InputFile output(read_end, program.filename().string(),
                     [child] { ::kill(child, stop_signal()); });
    read(output);
  } catch (...) {
    problem = std::current_exception();
  }
  // A child that still writes must not wait for a reader. The closed pipe ends it.
  read_end.close();
  const int status = status_of(child, 0, program).value_or(0);
  const int exit_code = internal::exit_code_of(status);
  const bool by_closed_pipe = exit_code == 128 + SIGPIPE;
  if (WIFSIGNALED(status) && !by_closed_pipe) {
    // A child that still loaded its libraries had no handler for the stop that was passed on.
    if (WTERMSIG(status) == stop_signal()) check_for_stop();
    throw Error(
        program.filename().string(),
        fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status))),
        WTERMSIG(status) == SIGKILL ? "most often memory ran out: try smaller sizes" : "");
  }
  if (exit_code != 0 && !by_closed_pipe) throw AlreadyReported(exit_code);
  if (problem) std::rethrow_exception(problem);
  if (exit_code != 0) throw AlreadyReported(exit_code);
}

}  // namespace ql
