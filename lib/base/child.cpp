#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/signals.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace ql {

namespace {

// A pipe that children do not inherit; closes what is still open.
class Pipe {
 public:
  explicit Pipe(const std::string& where) {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw SystemError(where, "open a pipe", errno);
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_write_end() { close(1); }

 private:
  void close(std::size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

pid_t start(const std::string& program, const std::vector<std::string>& arguments, int output) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  // run_tool ignores SIGPIPE, and what is ignored stays so across exec.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  pid_t child = 0;
  const int problem =
      ::posix_spawn(&child, program.c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) throw SystemError(program, "start it", problem);
  return child;
}

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
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
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

ChildResult run_child(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments) {
  Pipe pipe(program.string());
  const pid_t child = start(program.string(), arguments, pipe.write_end());
  pipe.close_write_end();
  ChildResult result;
  try {
    result.output = read_output(pipe.read_end(), program.string());
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
